"""The screens of a training run: what it will cost, and how its books close."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchledger.formula import Parameter
from torchledger.ledger import Ledger, RunRecord
from torchledger.units import (
    format_bytes,
    format_count,
    format_duration,
    format_flops,
    format_flops_per_s,
    format_number,
    format_percent,
    group_digits,
)
from torchledger.view.closing import closing_table
from torchledger.view.memory import memory_bars
from torchledger.view.screen import Block, Facts, Lines, Row, Table, assumed
from torchledger.view.table import ledger_table


def prediction_screen(
    name: str,
    figures: Mapping[str, Any],
    ledger: Ledger,
    parameters: tuple[Parameter, ...],
    assumptions: tuple[str, ...],
) -> tuple[Block, ...]:
    """What a run will cost.

    Args:
        name: what it is called.
        figures: keys with units, as `prediction` of a `RunRecord` has them.
        ledger: one step by formula.
        parameters: every parameter.
        assumptions: everything that was assumed.
    """
    scratch = {"inside kernels": figures["scratch_bytes"]} if figures["scratch_bytes"] else {}
    return (
        Lines((f"{name}: predicted before it runs",), mark="headline"),
        parameter_table(parameters),
        ledger_table(ledger, "phase", title="one step by phase"),
        memory_bars(
            {**figures["parts_bytes"], **scratch}, capacity_bytes=figures["free_bytes"], title="peak memory of a step"
        ),
        Facts(_pace(figures), "pace"),
        *assumed(assumptions),
    )


def _pace(figures: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    kinds = sorted(figures["seconds_by_kind"].items(), key=lambda item: -item[1])
    largest = ", ".join(f"{kind} {format_duration(seconds)}" for kind, seconds in kinds[:5])
    return (
        ("FLOPs a step", f"{group_digits(figures['step_flops'])} ({figures['convention']})"),
        ("seconds a step", f"{_seconds(figures)}: {largest}"),
        ("tokens/s", format_count(figures["tokens_per_s"])),
        (
            "MFU",
            _utilisation(figures),
        ),
        ("the run", _run(figures)),
        ("loss at step 0", _initial_loss(figures["initial_loss"])),
    )


def _seconds(figures: Mapping[str, Any]) -> str:
    """Seconds of a step; where no time is known for some of it, the least that it takes, and for what."""
    if figures["step_s"] is not None:
        return format_duration(figures["step_s"])
    ops = ", ".join(figures["untimed_ops"])
    return f"unknown, at least {format_duration(figures['least_step_s'])} (no time is known for {ops})"


def _initial_loss(nats: float | None) -> str:
    return "unknown: it is that of the initial weights" if nats is None else f"{nats:.4f} nats = ln(vocabulary)"


def _utilisation(figures: Mapping[str, Any]) -> str:
    peak = format_flops_per_s(figures["peak_flops_per_s"])
    return f"{format_percent(figures['mfu'])} of {peak}, {figures['peak_source']}"


def _run(figures: Mapping[str, Any]) -> str:
    return (
        f"{group_digits(figures['num_steps'])} steps, {group_digits(figures['num_tokens'])} tokens"
        f" ({format_number(figures['epochs'])} epochs), {format_flops(figures['run_flops'])},"
        f" {format_duration(figures['run_s'])}"
    )


def parameter_table(parameters: tuple[Parameter, ...]) -> Table:
    """Parameters by part: the embedding, each part of a layer, the head."""
    groups: dict[str, int] = {}
    for parameter in parameters:
        path = parameter.name.split(".")
        part = ".".join(path[:3]) if path[0] == "layers" else path[0]
        groups[part] = groups.get(part, 0) + parameter.total
    total = sum(groups.values())
    rows = [
        Row((part, group_digits(count), format_percent(count / total) if total else ""))
        for part, count in groups.items()
        if count
    ]
    return Table(
        ("<part", "parameters", "share"),
        (*rows, Row(("total", group_digits(total), format_percent(1.0)), mark="total")),
        "parameters by part",
    )


def closing_screen(record: RunRecord) -> tuple[Block, ...]:
    """How the books of a run close: predicted against measured, what was noticed, what the model wrote."""
    findings = tuple(f"{each.severity}: {each.message}" for each in record.findings)
    return (
        closing_table(record.differences),
        *((Lines(findings, "noticed"),) if findings else ()),
        *(Lines((sample.rstrip(),), "written by the model", "code") for sample in record.samples[-1:]),
    )


def fit_lines(peak_bytes: int, free_bytes: int) -> str:
    """Whether a step fits, in one sentence."""
    share = format_percent(peak_bytes / free_bytes) if free_bytes else "all"
    verb = "fits" if peak_bytes <= free_bytes else "does not fit"
    return f"{format_bytes(peak_bytes)} at the peak {verb} into {format_bytes(free_bytes)} of free memory ({share})"
