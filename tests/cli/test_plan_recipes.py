import pytest

from torchledger.cli.plan_recipes import OFFLOADS, recipes_of
from torchledger.config import ConfigError
from torchledger.spec import Recipe


def test_every_precision_with_every_offload_in_the_order_of_the_words():
    """2 precisions · 2 ways to offload are 4 recipes; a word said twice is one."""
    found = recipes_of(Recipe(), {"search_precision": "fp8, bf16,fp8", "search_offload": "optimizer,none"})
    assert [(each.precision, each.offload_optimizer) for each in found] == [
        ("fp8", True),
        ("fp8", False),
        ("bf16", True),
        ("bf16", False),
    ]


def test_what_no_option_varies_stays_as_the_question_has_it():
    """Without options the recipe itself; with one of them the other's field is the recipe's."""
    recipe = Recipe(precision="bf16-master", offload_activations=0.3)
    assert recipes_of(recipe, {}) == (recipe,)
    assert {each.offload_activations for each in recipes_of(recipe, {"search_precision": "bf16,fp8"})} == {0.3}
    varied = recipes_of(recipe, {"search_offload": ",".join(OFFLOADS)})
    assert [each.offload_activations for each in varied] == [0.0, 0.0, 1.0, 1.0]
    assert {each.precision for each in varied} == {"bf16-master"}


def test_words_that_are_none_are_told_together():
    """A precision, an offload and a precision given twice: three mistakes, with what was probably meant."""
    words = {"search_precision": "bf16,bf17", "search_offload": "non", "precision": "fp8"}
    with pytest.raises(ConfigError, match="3 mistakes") as refused:
        recipes_of(Recipe(), words)
    for told in ("did you mean 'bf16'?", "did you mean 'none'?", "leave one of the two out"):
        assert told in str(refused.value)
