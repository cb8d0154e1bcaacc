"""Bytes that an optimizer's step moves for a parameter, added up by hand."""

import pytest

from torchledger.planner.update import update_bytes
from torchledger.spec import OptimizerSpec


@pytest.mark.parametrize(
    ("kind", "precision", "expected"),
    [
        # gradient read; weight read and written; two moments read and written
        ("adamw", "fp32", 4 + 2 * 4 + 2 * 8),
        # the same on the FP32 copy, and the 16-bit weight written
        ("adamw", "bf16-master", 4 + 2 * 4 + 2 * 8 + 2),
        # everything in two bytes
        ("adamw", "bf16-pure", 2 + 2 * 2 + 2 * 4),
        # one moment
        ("lion", "fp32", 4 + 2 * 4 + 2 * 4),
        # moments of one byte each
        ("adamw-8bit", "fp32", 4 + 2 * 4 + 2 * 2),
        ("sgd", "fp32", 4 + 2 * 4),
    ],
)
def test_a_step_reads_the_gradient_and_reads_and_writes_weight_and_state(kind, precision, expected):
    """Without clipping and momentum each is moved once."""
    assert update_bytes(OptimizerSpec(kind, gradient_clip=0.0, momentum=0.0), precision) == expected


def test_clipping_reads_the_gradient_once_more():
    """The norm needs every gradient before the first update: four bytes each."""
    clipped, free = (update_bytes(OptimizerSpec(gradient_clip=clip), "fp32") for clip in (1.0, 0.0))
    assert clipped - free == 4


def test_momentum_is_read_and_written():
    """SGD with momentum has one FP32 average."""
    moved = [update_bytes(OptimizerSpec("sgd", momentum=each), "fp32") for each in (0.0, 0.9)]
    assert moved[1] - moved[0] == 2 * 4
