"""Rows and figures of the precision audit's record: plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from torchledger.auditor.precision_census import FORMATS, Census, Lost, merged
from torchledger.auditor.precision_findings import Evidence
from torchledger.auditor.precision_recipe import Check
from torchledger.auditor.precision_scale import tried
from torchledger.auditor.subject import Subject

__all__ = ["facts", "tables"]

_LOSSES = ("to_zero", "subnormal", "overflow")
_GRADIENTS = ("activation gradient", "weight gradient")

Row = Mapping[str, Any]


def facts(subject: Subject, evidence: Evidence) -> dict[str, Any]:
    """The figures of the whole step."""
    optimizer, scale = subject.optimizer, evidence.scale
    logits = [each.census.largest for each in evidence.seen.operations.logits.values()]
    wanted = sum(each.wanted for each in evidence.moved)
    frozen = sum(each.frozen_in["BF16"] for each in evidence.moved)
    return {
        "precision": subject.precision + (f" ({evidence.own_told})" if evidence.own_told else ""),
        "loss": evidence.reference.loss,
        "learning_rate": None if optimizer is None else optimizer.param_groups[0].get("lr"),
        "largest_attention_logit": max(logits, default=None),
        "frozen_share_if_weights_bf16": frozen / wanted if wanted else None,
        "fp16_loss_scale_exponent": scale.exponent,
        "fp16_gradients_to_zero_share_unscaled": scale.unscaled,
        "fp16_gradients_to_zero_share_scaled": scale.scaled,
        "advised": None if evidence.advised is None else evidence.advised.recipe.told(),
        "advised_loss_difference": None if evidence.advised is None else evidence.advised.loss_difference,
        "advised_gradient_cosine": None if evidence.advised is None else evidence.advised.gradient_cosine,
    }


def tables(evidence: Evidence) -> dict[str, tuple[Row, ...]]:
    """The rows by table; see `audit_precision` for their columns."""
    found = {
        "kinds": tuple(_kind(kind, places) for kind, places in evidence.kinds.items()),
        "tensors": tuple(
            {"kind": kind, "place": place or "(the model)", **_census(census), **_lost_each({place: census})}
            for kind, places in evidence.kinds.items()
            for place, census in places.items()
        ),
        "updates": tuple(_updates(evidence)),
        "logits": tuple(
            {
                "place": place or "(the model)",
                "largest": each.census.largest,
                "before_scaling": each.before_scaling,
                "length": each.length,
            }
            for place, each in evidence.seen.operations.logits.items()
        ),
        "softmaxes": tuple(_softmaxes(evidence)),
        "loss_scales": tuple(_loss_scales(evidence)),
        "kept": tuple(_kept(evidence)),
        "checks": tuple(_check(which, check) for which, check in evidence.checks.items()),
    }
    return {name: rows for name, rows in found.items() if rows}


def _kind(kind: str, places: Mapping[str, Census]) -> Row:
    worst = max(places, key=lambda place: places[place].lost("FP16").share("to_zero"))
    return {
        "kind": kind,
        "tensors": len(places),
        **_census(merged(places.values())),
        **_lost_each(places),
        "worst_in_fp16": worst or "(the model)",
    }


def _census(census: Census) -> dict[str, Any]:
    return {
        "format": census.format,
        "elements": census.elements,
        "zeros": census.zeros,
        "infinities": census.infinities,
        "nans": census.nans,
        "subnormals": census.subnormals,
        "largest": census.largest,
        "exponents": tuple((exponent, number) for exponent, number in census.counts.items()),
    }


def _lost_each(places: Mapping[str, Census]) -> dict[str, float]:
    """Shares that each format loses; FP8 with a scale for each tensor, a power of two, as it is used."""
    shares: dict[str, float] = {}
    for name in FORMATS:
        is_scaled = name.startswith("FP8")
        lost = sum(
            (each.lost(name, shift=_own_scale(each, name) if is_scaled else 0) for each in places.values()), Lost()
        )
        shares |= {f"{name.lower()}_{what}": lost.share(what) for what in _LOSSES}
    return shares


def _own_scale(census: Census, name: str) -> int:
    return census.largest_shift(name) or 0


def _updates(evidence: Evidence) -> Iterator[Row]:
    for each in evidence.moved:
        yield {
            "parameter": each.name,
            "stored": each.stored,
            "master": each.master,
            "wanted": each.wanted,
            "frozen_share": each.share(),
            "frozen_share_bf16": each.share("BF16"),
            "frozen_share_fp16": each.share("FP16"),
            "ratio": each.ratio,
        }


def _softmaxes(evidence: Evidence) -> Iterator[Row]:
    own = evidence.own_operations.softmaxes if evidence.own_operations is not None else {}
    for key, each in evidence.seen.operations.softmaxes.items():
        place, _, name = key.rpartition(":")
        ran = own.get(key, each)
        row = {"place": place or "(the model)", "operation": name, "length": each.length, "is_log": each.is_log}
        sums = {f"sum_{kind.lower()}": None if math.isnan(total) else total for kind, total in each.sums.items()}
        yield {**row, "format": ran.format, "off": ran.off, **sums}


def _loss_scales(evidence: Evidence) -> Iterator[Row]:
    if evidence.scale.exponent is None:
        return
    gradients = [census for kind in _GRADIENTS for census in evidence.kinds.get(kind, {}).values()]
    for exponent, lost, overflows in tried(gradients, evidence.scale.exponent):
        yield {
            "exponent": exponent,
            "to_zero_share": lost.share("to_zero"),
            "subnormal_share": lost.share("subnormal"),
            "overflows": overflows,
        }


def _kept(evidence: Evidence) -> Iterator[Row]:
    if evidence.advised is not None:
        for place, reason in evidence.advised.recipe.kept.items():
            yield {"place": place or "(the model)", "reason": reason}


def _check(which: str, check: Check) -> Row:
    row = {key: value for key, value in asdict(check).items() if key != "recipe"}
    return {"which": which, "recipe": check.recipe.told(), **row, "holds": check.holds}
