"""FLOPs per token: our count over its tokens. The formulas in circulation are tested in tests/published."""

from torchledger.formula import count, flops_per_token, per_token
from torchledger.ledger import Convention
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe

SPEC = ModelSpec("s", 50, 64, 3, 32, AttentionSpec(4), MlpSpec(16))


def test_a_token_costs_its_share_of_the_step():
    recipe = Recipe(batch_size=6, sequence_length=8, accumulation_steps=3)
    assert flops_per_token(SPEC, recipe) == count(SPEC, recipe).flops / (6 * 8)


def test_batch_does_not_change_what_a_token_costs_and_sequence_does():
    one, many, long = (
        flops_per_token(SPEC, Recipe(batch_size=rows, sequence_length=T)) for rows, T in ((1, 8), (5, 8), (1, 16))
    )
    assert one == many
    assert long - one == 3 * 3 * 2 * 4 * 8 * (8 + 8)  # forward and backward, L, 2, H, T more, both products


def test_a_convention_may_be_given():
    recipe = Recipe(sequence_length=8)
    exact = flops_per_token(SPEC, recipe, Convention(attention="exact"))
    assert exact == count(SPEC, recipe, convention=Convention(attention="exact")).flops / 8


def test_nothing_said_is_the_longest_sequence_of_the_model():
    assert per_token(SPEC) == per_token(SPEC, 64)
