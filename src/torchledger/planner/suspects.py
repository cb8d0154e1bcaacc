"""What a printed MFU may have been divided by, and what model may have been counted, where the plain reading fails."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from torchledger.machine import Chip, get
from torchledger.machine.chip import rate_format
from torchledger.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Peak:
    """What a speed may be divided by.

    Attributes:
        what: which peak it is, in words.
        flops_per_s: its value.
        is_own: whether it is the right one, the chip's dense peak of the format, be it rounded.
    """

    what: str
    flops_per_s: float
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class Variant:
    """A model that may have been counted in place of the real one.

    Attributes:
        what: how it differs; empty for the model itself.
        spec: the model.
    """

    what: str
    spec: ModelSpec


def own_peak(chip: Chip, number_format: str) -> Peak:
    """The chip's dense peak of the format.

    Raises:
        NoPeak: it has none.
    """
    form = rate_format(number_format)
    return Peak(f"the dense {form} peak of {chip.name}", chip.peak(form), is_own=True)


def peaks(chip: Chip, number_format: str) -> tuple[Peak, ...]:
    """Every peak that might have been taken, the right one first; of equal ones the first."""
    found: dict[float, Peak] = {}
    for each in (own_peak(chip, number_format), *_others(chip, number_format)):
        found.setdefault(each.flops_per_s, each)
    return tuple(found.values())


def variants(spec: ModelSpec) -> tuple[Variant, ...]:
    """The model, and the mistakes that are made with one like it."""
    found = [Variant("", spec)]
    gated = spec.mlp.kind == "gated"
    flipped = replace(spec, mlp=replace(spec.mlp, kind="plain" if gated else "gated"))
    what = (
        "an MLP of two matrices where the model's has three"
        if gated
        else "a gated MLP of three matrices where the model's has two"
    )
    found.append(Variant(what, flipped))
    heads = spec.attention.num_heads
    if spec.attention.kind == "standard" and spec.num_key_value_heads != heads:
        whole = replace(spec, attention=replace(spec.attention, num_key_value_heads=heads))
        found.append(Variant("as many key-value heads as heads", whole))
    if spec.moe is not None:
        dense = replace(spec, moe=replace(spec.moe, experts_per_token=spec.moe.num_experts))
        found.append(Variant("all experts, not only those that a token visits", dense))
    return tuple(found)


def _others(chip: Chip, number_format: str) -> Iterator[Peak]:
    form = rate_format(number_format)
    exact = chip.peak(form)
    for rounded in (math.floor(exact / 1e12) * 1e12, math.ceil(exact / 1e12) * 1e12):
        yield Peak(f"the dense {form} peak of {chip.name} as {rounded / 1e12:,.0f} TFLOP/s", rounded, is_own=True)
    for quoted in chip.quoted:
        if quoted.what == f"dense.{form}":
            yield Peak(f"another figure in print for the same peak ({quoted.by})", quoted.value, is_own=True)
    for peak in chip.peaks:
        if peak.number_format in {"int8", "fp64"}:
            continue
        if peak.sparse_flops_per_s is not None and peak.number_format == form:
            yield Peak(f"the {form} peak of {chip.name} with structured sparsity", peak.sparse_flops_per_s)
        if peak.number_format != form:
            yield Peak(f"the dense {peak.number_format} peak of {chip.name}", peak.dense_flops_per_s)
    for row in _hard_coded():
        other = get(row["chip"])
        if other.key != chip.key:
            yield Peak(f"{row['what']} ({row['source']})", other.peak(row["format"]))


@cache
def _hard_coded() -> tuple[dict[str, Any], ...]:
    text = resources.files("torchledger.planner").joinpath("data/hard_coded.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["peak"])
