"""Seconds of the optimizer for a parameter: its bytes over the bandwidth, and Muon's products."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torchledger.machine import get
from torchledger.planner.chipset import chipset_of
from torchledger.planner.constants import default_constants
from torchledger.planner.host import Host
from torchledger.planner.update import update_s
from torchledger.spec import OptimizerSpec, Recipe, presets

SPEC = presets.get("llama-3-8b")
CHIPS = chipset_of(get("h100"), default_constants(get("h100")), "cudnn")


def bytes_of(optimizer: OptimizerSpec, precision: str) -> float:
    return update_s(SPEC, Recipe(optimizer=optimizer), precision, CHIPS) * CHIPS.bytes_per_s


@pytest.mark.parametrize(
    ("kind", "precision", "moved"),
    [
        ("adamw", "fp32", 4 + 4 + 8 + 4 + 8),  # gradient, weight and two moments read; weight and moments written
        ("adamw", "bf16-master", 2 + 4 + 8 + 4 + 8 + 2),  # master and moments, the 16-bit weight written
        ("sgd", "fp32", 4 + 4 + 4),
        ("lion", "fp32", 4 + 4 + 4 + 4 + 4),
    ],
)
def test_what_moves_is_read_and_written_once(kind: str, precision: str, moved: int) -> None:
    """Without clipping, a fused step reads each tensor once and writes what it changes once; starts are nothing."""
    found = bytes_of(OptimizerSpec(kind, gradient_clip=0.0), precision)  # type: ignore[arg-type]
    assert found == pytest.approx(moved, rel=0.001)


def test_clipping_moves_gradients_more_often() -> None:
    clipped, free = (bytes_of(OptimizerSpec(gradient_clip=clip), "fp32") for clip in (1.0, 0.0))
    assert clipped - free == pytest.approx(3 * 4, rel=0.01)  # read for the norm, read and written for scaling


def test_muon_computes_where_adamw_moves_bytes() -> None:
    """Five iterations of three products a matrix (Moonlight, arXiv:2502.16982) take longer than AdamW's bytes."""
    muon, adamw = (
        update_s(SPEC, Recipe(optimizer=OptimizerSpec(kind)), "bf16-master", CHIPS) for kind in ("muon", "adamw")
    )
    assert muon > 2 * adamw


def test_nothing_trained_takes_no_time() -> None:
    frozen = replace(Recipe(), trainable=("nothing",))
    assert update_s(SPEC, frozen, "fp32", CHIPS) == 0


def test_the_hosts_update_is_its_memorys_and_clipping_stays_on_the_chip() -> None:
    """28 bytes a parameter over the host's bandwidth; what clipping moves is over the chip's."""
    host, recipe = Host(1e9, 10e9, "a host"), Recipe()
    free = replace(recipe, optimizer=OptimizerSpec(gradient_clip=0.0))
    assert update_s(SPEC, free, "bf16-master", CHIPS, host) == pytest.approx(28 / 10e9)
    clipping = [
        update_s(SPEC, recipe, "fp32", CHIPS, at) - update_s(SPEC, free, "fp32", CHIPS, at) for at in (None, host)
    ]
    assert clipping[0] == pytest.approx(clipping[1], rel=1e-6)
