"""Seconds of a block by phase and cause: bound by the device or by the host, exchanges shown or hidden."""

import pytest

from torchledger.ledger import Line, Work
from torchledger.planner.block import Piece
from torchledger.planner.constants import Constants
from torchledger.planner.efficiency import Chipset, line_s
from torchledger.planner.exchange import Exchange
from torchledger.planner.piece_cost import piece_cost
from torchledger.planner.stage import Block

#: One byte takes a second, and a kernel nothing to start.
CHIP = Chipset((("bf16", 1.0),), (1.0, 1.0), (1.0, 1.0), 0.0, 1.0, 1, 0.0)
NOTHING = Constants(host_s=0.0, checkpoint_host_s=0.0, drag=0.0)


def moving(num_bytes, phase="forward", gradient_of="none", times=1):
    """A line that moves so many bytes."""
    return Line("mlp", "gelu", Work(bytes_read=num_bytes), "pointwise", phase, gradient_of=gradient_of, times=times)


def computing(flops, kind="matmul", phase="forward", gradient_of="none"):
    """A contraction of so many FLOPs that moves next to nothing."""
    work = Work(flops, flops, flops, bytes_read=1e-9)
    return Line("mlp", kind, work, kind, phase, number_format="bf16", gradient_of=gradient_of)


def cost(*lines, exchanges=(), constants=NOTHING, host_factor=1.0):
    """Of a block; an exchange takes as many seconds as it has bytes."""
    block = Block("layer", "layer", lines, 0, 0, 0, 0, 0, 0, (), 0, 0, 0, 0, 0)
    piece = Piece(block, exchanges, 1, ((0, 1),))
    return piece_cost(piece, CHIP, constants, lambda each: float(each.num_bytes), host_factor=host_factor)


def test_phases_are_apart_and_weight_gradients_are_a_phase_of_their_own():
    """Forward 1, recompute 2, gradients of inputs 3, gradients of weights 4."""
    found = cost(moving(1), moving(2, "recompute"), moving(3, "backward", "input"), moving(4, "backward", "weight"))
    seconds = (found.forward.seconds, found.recompute.seconds, found.backward.seconds, found.weight.seconds)
    assert seconds == (1, 2, 3, 4)
    assert found.total_s == 1 + 2 + 3 + 4


def test_causes_of_a_phase_add_up_to_it():
    """Products, attention, what moves bytes, and what ranks send: each by its name."""
    found = cost(
        computing(5),
        computing(7, "attention"),
        moving(11),
        moving(2, times=3),
        exchanges=(
            Exchange("mlp", "all_reduce", 13, "forward", "tensor", times=2),
            Exchange("head", "all_reduce", 1, "forward", "vocabulary"),
            Exchange("experts", "all_to_all", 17, "forward", "expert"),
        ),
    ).forward
    assert dict(found.causes) == {
        "matmul": pytest.approx(5),
        "attention": pytest.approx(7),
        "memory-bound operations": 11 + 2 * 3,
        "tensor parallel communication": 2 * 13 + 1,
        "expert parallel communication": 17,
    }
    assert found.seconds == sum(seconds for _, seconds in found.causes)


def test_a_host_that_cannot_keep_up_makes_the_device_wait():
    """Three operations of 2 s on the host and 1 s on the device each: 6 s, of which 3 s are launch overhead."""
    slow = Constants(host_s=2.0, drag=0.0)
    found = cost(moving(1, times=2), moving(1), constants=slow).forward
    assert found.seconds == 3 * 2
    assert dict(found.causes) == {"memory-bound operations": 3, "launch overhead": 3 * 2 - 3}


def test_a_host_that_keeps_up_shows_nothing():
    """A device that takes longer than the host hides all of it."""
    found = cost(moving(10), constants=Constants(host_s=2.0)).forward
    assert found.causes == (("memory-bound operations", 10),)


def test_what_is_not_issued_one_by_one_has_no_host_time():
    """A compiled stack's factor is 0; fused operations written in Python have one above 1."""
    slow = Constants(host_s=2.0)
    assert cost(moving(1), constants=slow, host_factor=0.0).forward.seconds == 1
    assert cost(moving(1), constants=slow, host_factor=1.5).forward.seconds == 1.5 * 2


def test_a_recomputed_layer_costs_the_host_its_checkpoint():
    """Beside its operations; a layer without recompute pays nothing."""
    slow = Constants(host_s=2.0, checkpoint_host_s=5.0)
    found = cost(moving(1), moving(1, "recompute"), constants=slow)
    assert (found.forward.seconds, found.recompute.seconds) == (2, 2 + 5)
    assert cost(moving(1), constants=slow).recompute.seconds == 0


def test_collectives_are_issued_too():
    """An exchange is an operation of the host like a kernel."""
    found = cost(exchanges=(Exchange("mlp", "all_reduce", 1, "forward", "tensor", 4),), constants=Constants(host_s=3.0))
    assert found.forward.seconds == 4 * 3


@pytest.mark.parametrize(("ring", "shows"), [(4, 0), (10, 10 - 6)])
def test_a_ring_hides_beside_attention(ring, shows):
    """Of a ring beside 6 s of attention shows what is longer; matmuls hide nothing of it."""
    exchange = Exchange("core", "send", ring, "forward", "context", is_hidden=True)
    found = cost(computing(100), computing(6, "attention"), exchanges=(exchange,)).forward
    assert dict(found.causes).get("context parallel communication", 0) == pytest.approx(shows, abs=1e-6)


@pytest.mark.parametrize(("size", "shows"), [(4, 4 / 8), (20, 20 - 6)])
def test_of_a_collective_in_pieces_the_first_shows(size, shows):
    """Cut into 8 and hidden beside 6 s of matmuls: the first piece, or what is longer."""
    exchange = Exchange("mlp", "all_gather", size, "forward", "tensor", num_chunks=8, is_hidden=True)
    found = cost(computing(6), exchanges=(exchange,)).forward
    assert dict(found.causes)["tensor parallel communication"] == pytest.approx(shows)


def test_drag_shows_a_share_of_what_is_hidden():
    """A tenth of 4 s hidden beside 6 s of attention."""
    exchange = Exchange("core", "send", 4, "forward", "context", is_hidden=True)
    constants = Constants(host_s=0.0, drag=0.1)
    found = cost(computing(6, "attention"), exchanges=(exchange,), constants=constants).forward
    assert dict(found.causes)["context parallel communication"] == pytest.approx(0.1 * 4)


def test_lines_whose_seconds_are_unknown_are_left_out():
    """A format that the chip has no rate for has no seconds; it is for the rules to refuse it."""
    line = Line("mlp", "matmul", Work(1, 1, 1, bytes_read=1), "matmul", number_format="fp4")
    assert line_s(line, CHIP) is None
    assert cost(line, moving(1)).forward.seconds == 1
