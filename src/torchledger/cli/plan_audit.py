"""`plan MODEL --audit-mfu`: what a published or logged speed is under every convention, and which one was printed."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from torchledger import spec
from torchledger.cli.cluster import read_on
from torchledger.cli.failure import DoesNotFit
from torchledger.cli.napkin_options import AUDIT_NAMES
from torchledger.cli.output import show, show_json
from torchledger.cli.plan_options import refuse_unused
from torchledger.cli.quantity import OPEN
from torchledger.cli.question import read_sizes
from torchledger.formula import num_parameters
from torchledger.planner.claim import Audit, Claim, Row, audit
from torchledger.planner.printed import Printed, read_printed
from torchledger.units import format_percent, group_digits
from torchledger.view.audit import audit_screen

#: Options that an audit reads.
_USED = ("audit_mfu", *AUDIT_NAMES, "cluster", "num_chips", "catalog_files", "precision", "sequence", "batch")
#: What may stand behind tokens/s to say that they are of one chip.
_OF_ONE = ("/chip", "/gpu", "/device")


def answer_audit(model: str | None, options: Mapping[str, Any], *, as_json: bool) -> None:
    """Answer with MFU under every convention, and those that give the printed figure.

    Raises:
        click.UsageError: no model, no chips, a speed given twice, sizes that the model cannot have, or options that say
            nothing in an audit.
        DoesNotFit: what is claimed is impossible.
    """
    if model is None:
        raise click.UsageError(
            "an audit counts a model: name a preset, a config.json or a TOML file before --audit-mfu"
        )
    if not options["cluster"]:
        raise click.UsageError("an audit divides by a peak: --on CHIPxN says of which chip, and how many run")
    if options["mfu"] is not None:
        raise click.UsageError("in an audit the printed figure is --printed-mfu, whose digits say how exact it is")
    refuse_unused(options, _USED, "in an audit; leave it out")
    if options["num_chips"] in {0, OPEN}:
        raise click.UsageError("--chips is how many the speed was measured on, at least 1")
    described = spec.load(model)
    cluster = read_on(options["cluster"], options["num_chips"], options["catalog_files"])
    num_chips = cluster.num_chips
    length, batch = read_sizes(described, options)
    number_format = options["precision"].partition("-")[0]
    rate, how = _rate(options, length, batch, num_chips)
    flops = options["tflops"]
    claim = Claim(rate, None if flops is None else flops.times(1e12), options["printed_mfu"], options["printed_hfu"])
    found = audit(described, length, cluster.chip, number_format, claim)
    params, tokens = group_digits(num_parameters(described)), group_digits(length)
    assumptions = (
        *how,
        f"{described.name} has {params} parameters; sequences of {tokens} tokens (--sequence says otherwise)",
        "a figure is reproduced where a convention gives it within the rounding of its digits and of the speed's",
    )
    if as_json:
        question = {
            "model": described.name,
            "chip": cluster.chip.key,
            "num_chips": num_chips,
            "sequence_length": length,
            "number_format": number_format,
            **{name: None if each is None else each["value"] for name, each in asdict(claim).items()},
        }
        show_json("plan", question, _answer(found), assumptions)
    else:
        show(
            audit_screen(described.name, f"{group_digits(num_chips)} × {cluster.chip.name}", found, claim, assumptions)
        )
    if not found.is_possible:
        raise DoesNotFit("the claim is impossible: more than the chip's peak")


def _rate(
    options: Mapping[str, Any], length: int, batch: int | None, num_chips: int
) -> tuple[Printed | None, tuple[str, ...]]:
    """Tokens per second of one chip, and how they were found."""
    ways = [name for name in ("tokens_per_s", "step_time", "log") if options[name] is not None]
    if len(ways) > 1:
        told = " and ".join(f"--{name.replace('_', '-')}" for name in ways)
        raise click.UsageError(f"{told} both say how fast it is; leave one of them out")
    if options["tokens_per_s"] is not None:
        text = options["tokens_per_s"].strip()
        for suffix in _OF_ONE:
            if text.lower().endswith(suffix):
                return read_printed(text[: -len(suffix)]), ("tokens/s are of one chip",)
        note = f"tokens/s are of all {group_digits(num_chips)} chips (write 6159.4/chip for one)"
        return read_printed(text).times(1 / num_chips), (note,) if num_chips > 1 else ()
    if options["step_time"] is not None:
        if batch is None:
            raise click.UsageError("--step-time is of a batch: give --batch, the sequences of a step over all chips")
        step, tokens = options["step_time"], batch * length
        rate = tokens / step.value / num_chips
        within = format_percent(step.relative)
        note = f"tokens/s from {group_digits(tokens)} tokens in {step.text} s, known within {within}"
        return Printed(rate, rate * step.relative), (note,)
    if options["log"] is not None:
        return _logged(options["log"], num_chips)
    return None, ()


def _logged(path: Path, num_chips: int) -> tuple[Printed, tuple[str, ...]]:
    """The median step of a `metrics.jsonl`, warm-up left out."""
    rates = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # a last row cut in two
        is_step = isinstance(row, dict) and row.get("kind") == "step"
        if is_step and row.get("seconds") and row.get("tokens") and not row.get("warm_up"):
            rates.append(row["tokens"] / row["seconds"])
    if not rates:
        raise click.UsageError(
            f"{path} has no rows of steps with their seconds; it is a run's metrics.jsonl that is read"
        )
    rate = statistics.median(rates) / num_chips
    spread = statistics.median(abs(each / num_chips - rate) for each in rates)
    note = f"tokens/s from the median of {group_digits(len(rates))} steps in {path.name}, warm-up left out"
    return Printed(rate, spread), (note,)


def _answer(found: Audit) -> dict[str, Any]:
    return {
        "peak_flops_per_s": found.peak.flops_per_s,
        "is_possible": found.is_possible,
        "conventions": [_row(row) for row in found.rows],
        "with_recompute": [_row(row) for row in found.hardware],
        "explanations": [
            {
                "figure": each.figure,
                "conventions": list(each.conventions),
                "peak": each.peak.what,
                "peak_flops_per_s": each.peak.flops_per_s,
                "counted": each.variant.what or "the model as it is",
                "value": each.value,
            }
            for each in found.explanations
        ],
        "findings": list(found.findings),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "convention": row.reading.convention,
        "recompute": row.reading.recompute,
        "formula": row.reading.formula,
        "flops_per_token": row.reading.flops_per_token,
        "flops_per_s": row.flops_per_s,
        "utilisation": row.utilisation,
        "tokens_per_s": row.tokens_per_s,
        "reproduces": list(row.reproduces),
        "source": row.reading.source,
    }
