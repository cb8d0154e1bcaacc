"""Linear maps in FP8 and FP4: casts, bytes, and which copy is kept."""

import pytest

from torchledger.formula.dense import linear
from torchledger.formula.kernels import KERNELS
from torchledger.formula.narrow import runs_narrow
from torchledger.formula.sweep import backward_temporary_bytes
from torchledger.formula.tape import Tape

TOKENS, IN, OUT = 64, 32, 96


def _walked(precision, kernels):
    tape = Tape(precision, KERNELS[kernels])
    x = tape.make("x", (TOKENS, IN), "bf16")
    assert linear(tape, "up", x, OUT, inner=True).number_format == "bf16"
    return tape


@pytest.mark.parametrize(("precision", "bits"), [("fp8", 8), ("mxfp8", 8 + 8 / 32), ("nvfp4", 4 + 8 / 16)])
def test_transformer_engine_keeps_the_narrow_copies(precision, bits):
    """X and W in the narrow format with the scales of its blocks, neither in 16 bit."""
    kept = {each.name: each.total_bytes for each in _walked(precision, "megatron-flash").activations()}
    assert kept == {
        f"up: input in {precision}": TOKENS * IN * bits / 8,
        f"up: weight in {precision}": IN * OUT * bits / 8,
    }


def test_torchao_keeps_the_wide_input_and_casts_twice_more():
    """dy, and x and W again in the backward pass."""
    tape = _walked("fp8", "flash")
    assert {each.name: each.total_bytes for each in tape.activations()} == {"x": 2 * TOKENS * IN}

    def casts(tape):
        return [line.work.bytes_read for line in tape.lines() if line.op == "cast" and line.phase == "backward"]

    assert casts(tape) == [2 * TOKENS * OUT, 2 * TOKENS * IN, 2 * IN * OUT]
    assert casts(_walked("fp8", "megatron-flash")) == [2 * TOKENS * OUT]


def test_products_read_narrow_and_write_wide():
    tape = _walked("fp8", "megatron-flash")
    forward, *backward = [line for line in tape.lines() if line.kind == "matmul"]
    assert (forward.work.bytes_read, forward.work.bytes_written) == (TOKENS * IN + IN * OUT, 2 * TOKENS * OUT)
    assert [line.gradient_of for line in backward] == ["input", "weight"]
    assert {line.work.flops_full for line in (forward, *backward)} == {2 * TOKENS * IN * OUT}


def test_the_router_stays_wide():
    """Only linear layers of attention and MLP are cast."""
    tape = Tape("fp8", KERNELS["megatron-flash"])
    linear(tape, "router", tape.make("x", (TOKENS, IN), "bf16"), OUT)
    assert {line.number_format for line in tape.lines() if line.kind == "matmul"} == {"bf16"}


def test_the_trainer_keeps_what_came_and_the_scales():
    """The wide x, which its maker may keep already, and an FP32 scale of x and of W."""
    kept = {each.name: each.total_bytes for each in _walked("fp8", "cpu").activations()}
    assert kept == {"x": 2 * TOKENS * IN, "up: scale of the input": 4, "up: scale of the weight": 4}


def test_casting_in_single_operations_moves_more_bytes():
    """A first pass for the largest magnitude (2 bytes an element), to FP32 (2 in), times the scale (4), out (4)."""
    lines = [line for line in _walked("fp8", "cpu").lines() if line.phase == "forward" and line.kind != "matmul"]
    assert sum(line.work.bytes_read for line in lines) == (2 + 2 + 4 + 4) * (TOKENS * IN + IN * OUT)
    once = [line for line in _walked("fp8", "flash").lines() if line.phase == "forward" and line.kind != "matmul"]
    assert sum(line.work.bytes_read for line in once) == 2 * (TOKENS * IN + IN * OUT)


def test_the_fullest_moment_of_its_backward_pass():
    """Casting dy: its gradient in 16 bit, in FP32 and in 8 bit; it is larger than x and W."""
    assert backward_temporary_bytes(_walked("fp8", "cpu")) == (2 + 4 + 1) * TOKENS * OUT


@pytest.mark.parametrize("outputs", [OUT + 1, OUT + 8])
def test_sizes_that_the_units_do_not_take_stay_wide(outputs):
    """Both sizes of a matrix have to be multiples of 16."""
    assert not runs_narrow(IN, outputs)
    tape = Tape("fp8", KERNELS["cpu"])
    linear(tape, "up", tape.make("x", (TOKENS, IN), "bf16"), outputs, inner=True)
    assert {line.number_format for line in tape.lines()} == {"bf16"}
