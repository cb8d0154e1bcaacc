"""Linear maps, tables and norms: what they run, and what they keep."""

import pytest

from torchledger.formula.dense import embedding, linear, norm, weighted
from torchledger.formula.tape import Tape
from torchledger.spec import NormSpec


def _kept(tape):
    return {each.name: each.total_bytes for each in tape.activations()}


def _input(tape, *shape, number_format="fp32", requires_grad=True):
    """A tensor that an earlier module made."""
    return tape.make("x", shape, number_format, requires_grad=requires_grad)


def test_a_linear_map_keeps_its_input_and_no_weight_in_fp32():
    tape = Tape("fp32")
    y = linear(tape, "up", _input(tape, 2, 5, 8), 16, bias=True)
    assert (y.shape, y.number_format) == ((2, 5, 16), "fp32")
    assert _kept(tape) == {"x": 4 * 2 * 5 * 8}


def test_under_autocast_it_keeps_both_operands_in_bf16_but_no_bias():
    tape = Tape("bf16")
    y = linear(tape, "up", _input(tape, 2, 5, 8), 16, bias=True)
    assert y.number_format == "bf16"
    assert _kept(tape) == {"up: input": 2 * 2 * 5 * 8, "up: weight": 2 * 16 * 8}


def test_an_input_without_gradient_needs_no_weight_and_makes_no_input_gradient():
    tape = Tape("bf16")
    linear(tape, "up", _input(tape, 5, 8, requires_grad=False), 16)
    assert set(_kept(tape)) == {"up: input"}
    backward = [line.gradient_of for line in tape.lines() if (line.phase, line.kind) == ("backward", "matmul")]
    assert backward == ["weight"]


def test_two_maps_that_read_one_tensor_cast_it_twice_under_autocast():
    tape = Tape("bf16")
    x = _input(tape, 5, 8)
    linear(tape, "a", x, 16)
    linear(tape, "b", x, 16)
    assert {"a: input", "b: input"} <= set(_kept(tape))


def test_a_table_keeps_its_indices_unless_they_are_the_batch():
    tape = Tape("fp32")
    embedding(tape, "embedding", tape.given("tokens", (2, 5), "int64"), 100, 8)
    assert _kept(tape) == {}
    embedding(tape, "position", tape.make("positions", (5,), "int64", requires_grad=False), 100, 8)
    assert _kept(tape) == {"positions": 8 * 5}


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        (NormSpec("rms"), {"x": 4 * 40, "n: 1/root mean square": 4 * 5, "n: normalized": 4 * 40}),
        (NormSpec("rms", affine=False), {"x": 4 * 40, "n: 1/root mean square": 4 * 5}),
        (
            NormSpec("rms", unit_offset=True),
            {"x": 4 * 40, "n: 1/root mean square": 4 * 5, "n: normalized": 4 * 40, "n: 1 + weight": 4 * 8},
        ),
        (NormSpec("layer", bias=True), {"x": 4 * 40, "n: mean": 4 * 5, "n: 1/deviation": 4 * 5}),
        (NormSpec("layer", affine=False), {"x": 4 * 40, "n: mean": 4 * 5, "n: 1/deviation": 4 * 5}),
    ],
)
def test_a_norm_of_fp32_keeps_its_input_and_its_statistics(spec, kept):
    tape = Tape("bf16")
    assert norm(tape, "n", _input(tape, 5, 8), spec).number_format == "fp32"
    assert _kept(tape) == kept


@pytest.mark.parametrize(
    ("spec", "result", "kept"),
    [
        (NormSpec("layer"), "fp32", {"n: input": 4 * 40, "n: mean": 4 * 5, "n: 1/deviation": 4 * 5}),
        (NormSpec("layer", affine=False), "bf16", {"x": 2 * 40, "n: mean": 2 * 5, "n: 1/deviation": 2 * 5}),
        (NormSpec("rms", affine=False), "bf16", {"n: input": 4 * 40, "n: 1/root mean square": 4 * 5}),
    ],
)
def test_a_norm_of_bf16_computes_in_the_format_of_its_weight(spec, result, kept):
    tape = Tape("bf16")
    assert norm(tape, "n", _input(tape, 5, 8, number_format="bf16"), spec).number_format == result
    assert _kept(tape) == kept


def test_norms_of_heads_have_a_weight_and_no_bias_whatever_the_stream_has():
    assert weighted(NormSpec("layer", affine=False, bias=True)) == NormSpec("layer", affine=True, bias=False)
