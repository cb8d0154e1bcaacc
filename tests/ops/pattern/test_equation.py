import random

import pytest
from einops.einops import _compactify_pattern_for_einsum

from torchledger.ops.pattern import PatternError, parse_equation


def test_letters_may_stand_together_or_apart():
    """The equation `bij,bjk->bik` is the same with blanks, and its letters are kept."""
    together, apart = parse_equation("bij,bjk->bik"), parse_equation("b i j, b j k -> b i k")
    assert together.operands == apart.operands == (("b", "i", "j"), ("b", "j", "k"))
    assert together.output == apart.output
    assert together.in_letters == apart.in_letters == "bij,bjk->bik"


def test_names_become_letters_as_einops_does_it():
    """Drawn equations of longer names: the letters that einops gives torch."""
    rng = random.Random(0)
    names = ["batch", "head", "x1", "q", "Key", "d_model"]
    for _ in range(200):
        operands = [rng.sample(names, rng.randint(1, 4)) for _ in range(rng.randint(1, 3))]
        used = sorted({name for operand in operands for name in operand})
        output = [name for name in used if rng.random() < 0.5]
        text = f"{', '.join(' '.join(operand) for operand in operands)} -> {' '.join(output)}"
        equation = parse_equation(text, names)
        if any(len(name) > 1 for name in used):
            assert equation.in_letters == _compactify_pattern_for_einsum(text)


def test_a_word_is_a_name_where_its_size_is_known():
    """`row,row->` is a product of two vectors where `row` has a size, and nine letters where it has none."""
    assert parse_equation("row,row->", ["row"]).operands == (("row",), ("row",))
    assert parse_equation("row,row->").operands == (("r", "o", "w"), ("r", "o", "w"))


def test_what_is_summed_is_in_torchs_order():
    """Upper case before lower, then the alphabet."""
    assert parse_equation("cBaA,c->a").summed == ("A", "B", "c")


def test_without_an_arrow_the_result_is_what_stands_once():
    """As in torch: sorted, upper case first."""
    assert parse_equation("jb,jA").output == ("A", "b")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("i->i->i", "one `->`"),
        ("i...->i", "name its dimensions"),
        ("(i j),j->i", "no parentheses"),
        ("ij->ii", "stands twice in the result"),
        ("ij->k", "is in no operand"),
        ("i-j->i", "no name"),
    ],
)
def test_what_is_no_equation_says_why(text, says):
    with pytest.raises(PatternError, match=says):
        parse_equation(text)


def test_all_mistakes_are_told_at_once():
    """A result that has an index twice and two that nobody has."""
    with pytest.raises(PatternError) as told:
        parse_equation("ij->iikl")
    assert len(str(told.value).splitlines()) == 3


def test_torch_has_52_letters():
    names = " ".join(f"n{number}" for number in range(53))
    with pytest.raises(PatternError, match="more than 52"):
        parse_equation(f"{names} -> n0")
