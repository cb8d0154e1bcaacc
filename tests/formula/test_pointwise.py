"""Operations element by element: what each keeps, and in which format it answers."""

import pytest

from torchledger.formula import pointwise
from torchledger.formula.tape import Tape


def _kept(tape):
    return {each.name: each.total_bytes for each in tape.activations()}


def _value(tape, name, *shape, number_format="fp32"):
    return tape.make(name, shape, number_format)


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        ("gelu", {"x": 40}),
        ("gelu_tanh", {"x": 40}),
        ("silu", {"x": 40}),
        ("relu", {"relu output": 40}),
        ("relu_squared", {"relu output": 40}),
    ],
)
def test_smooth_activations_keep_their_input_and_relu_its_output(kind, kept):
    tape = Tape("fp32")
    pointwise.activation(tape, "", _value(tape, "x", 10), kind)
    assert _kept(tape) == kept


def test_a_sum_keeps_nothing_and_answers_in_the_wider_format():
    tape = Tape("bf16")
    narrow, wide = _value(tape, "a", 10, number_format="bf16"), _value(tape, "b", 10)
    assert pointwise.add(tape, "", narrow, wide).number_format == "fp32"
    assert pointwise.add(tape, "", narrow, narrow).number_format == "bf16"
    assert _kept(tape) == {}


def test_a_product_keeps_both_factors_each_in_its_own_format():
    tape = Tape("bf16")
    narrow, wide = _value(tape, "a", 5, 2, number_format="bf16"), _value(tape, "b", 5, 1)
    assert pointwise.multiplied(tape, "", narrow, wide, "y").number_format == "fp32"
    assert _kept(tape) == {"a": 2 * 10, "b": 4 * 5}


def test_a_python_number_is_kept_in_eight_bytes():
    tape = Tape("fp32")
    pointwise.scaled(tape, "", _value(tape, "x", 10), "y")
    assert _kept(tape) == {"y: number": 8}
    pointwise.scaled(tape, "", _value(tape, "x", 10), "z", keeps_number=False)
    assert _kept(tape) == {"y: number": 8}


def test_a_soft_cap_keeps_its_tanh_and_two_numbers():
    tape = Tape("fp32")
    pointwise.soft_capped(tape, "", _value(tape, "x", 10), "scores")
    assert sorted(_kept(tape).values()) == [8, 8, 40]


@pytest.mark.parametrize(("function", "kept"), [("sigmoid", "y"), ("softmax", "y")])
def test_sigmoid_and_softmax_keep_their_output(function, kept):
    tape = Tape("fp32")
    getattr(pointwise, function)(tape, "", _value(tape, "x", 5, 2), "y")
    assert _kept(tape) == {kept: 40}


def test_a_clamp_keeps_its_input():
    tape = Tape("fp32")
    pointwise.clamped(tape, "query", _value(tape, "x", 10))
    assert _kept(tape) == {"x": 40}


def test_dropout_keeps_a_mask_in_the_format_of_its_input():
    tape = Tape("bf16")
    pointwise.dropped(tape, "", _value(tape, "x", 10, number_format="bf16"), "weights")
    assert _kept(tape) == {"weights dropout mask": 20}


def test_each_has_a_backward_line_of_its_own_but_for_the_sum():
    for function, arguments in (
        (pointwise.scaled, ("y",)),
        (pointwise.soft_capped, ("y",)),
        (pointwise.sigmoid, ("y",)),
        (pointwise.softmax, ("y",)),
        (pointwise.clamped, ()),
        (pointwise.activation, ("silu",)),
    ):
        tape = Tape("fp32")
        function(tape, "m", _value(tape, "x", 5, 2), *arguments)
        assert [line.phase for line in tape.lines()] == ["forward", "backward"]
