"""Patterns are those that einops takes, and no others."""

import random

import einops
import pytest

from torchledger.ops.pattern import PatternError, parse
from torchledger.ops.pattern.text import size_of_nameless


def test_groups_are_dimensions():
    """Parentheses make one dimension of several axes, `1` makes one of none."""
    pattern = parse("b 1 (h d) -> h (b d) ()", "rearrange")
    assert pattern.left == (("b",), (), ("h", "d"))
    assert pattern.right == (("h",), ("b", "d"), ())
    assert pattern.left_axes == ("b", "h", "d")


def test_a_number_is_an_axis_without_a_name():
    """Two of the same size are two axes."""
    pattern = parse("h -> h 2 2", "repeat")
    first, second = pattern.right_axes[1:]
    assert first != second
    assert size_of_nameless(first) == size_of_nameless(second) == 2


def test_an_ellipsis_becomes_as_many_axes_as_there_are():
    """In parentheses they make one dimension, outside as many."""
    pattern = parse("b ... c -> c ... b", "rearrange").with_ellipsis_of(2)
    assert pattern.left == (("b",), ("...0",), ("...1",), ("c",))
    assert pattern.right == (("c",), ("...0",), ("...1",), ("b",))
    assert parse("b ... -> (b ...)", "rearrange").with_ellipsis_of(2).right == (("b", "...0", "...1"),)
    assert parse("b ... -> (...) b", "rearrange").with_ellipsis_of(0).right == ((), ("b",))


@pytest.mark.parametrize(
    ("text", "operation", "says"),
    [
        ("a b", "rearrange", "one `->`"),
        ("a -> a -> a", "rearrange", "one `->`"),
        ("a ((b c)) -> a b c", "rearrange", "parentheses inside"),
        ("a) -> a", "rearrange", "`)` without"),
        ("(a -> a", "rearrange", "`(` without"),
        ("a a -> a", "rearrange", "stands twice"),
        ("a b -> a", "rearrange", "b of the left side is missing"),
        ("a -> a b", "rearrange", "b of the right side is not"),
        ("a -> a b", "reduce", "b of the right side is not"),
        ("a b -> a", "repeat", "b of the left side is missing"),
        ("a -> a ...", "rearrange", "on the right"),
        ("(a ...) -> a ...", "rearrange", "cannot stand in parentheses"),
        ("a ... ... -> a", "reduce", "more than once"),
        ("a-b -> b", "rearrange", "no name"),
        ("_a -> _a", "rearrange", "no name"),
        ("0 -> 0", "rearrange", "at least 1"),
    ],
)
def test_what_is_no_pattern_says_why(text, operation, says):
    with pytest.raises(PatternError, match=says.replace("(", r"\(").replace(")", r"\)").replace(".", r"\.")):
        parse(text, operation)


def test_all_broken_rules_are_told_at_once():
    """What goes and what is new in one message."""
    with pytest.raises(PatternError) as told:
        parse("a b b -> c", "rearrange")
    assert len(str(told.value).splitlines()) == 3  # b twice; a and b gone; c new


def test_what_einops_takes_is_taken_and_what_it_refuses_is_refused():
    """Drawn texts of a few signs, read by both."""
    rng = random.Random(0)
    signs = ["a", "b", "c", "1", "2", "(", ")", "...", "a b", "_"]
    taken = 0
    for _ in range(3_000):
        words = [rng.choice(signs) for _ in range(rng.randint(1, 5))]
        words.insert(rng.randint(1, len(words)), "->")
        text = " ".join(words)
        try:
            # as many dimensions as the left side names: how many a tensor has is no matter of the text
            num_dimensions = len(einops.parsing.ParsedExpression(text.partition("->")[0]).composition)
            einops.einops._prepare_transformation_recipe(text, "sum", (), num_dimensions)
        except einops.EinopsError as error:
            if "Could not infer sizes" not in str(error):
                with pytest.raises(PatternError):
                    parse(text, "reduce")
        else:
            parse(text, "reduce")
            taken += 1
    assert taken > 200
