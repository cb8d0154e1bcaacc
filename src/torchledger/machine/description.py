"""What the catalog knows of a chip, as plain rows: numbers with units, for a viewer to draw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torchledger.machine.chip import Chip
from torchledger.machine.link import Link


@dataclass(frozen=True, slots=True)
class Fact:
    """One row of a description.

    Attributes:
        what: the fact ("bf16 peak").
        value: a number in SI base units, or text; None: unknown.
        unit: "FLOP/s", "op/s", "B", "B/s", "W", or "" for counts and text.
        sparse: beside a dense peak, the vendor's figure with structured sparsity; None: none known.
        note: what to know about it.
    """

    what: str
    value: float | str | None
    unit: str = ""
    sparse: float | None = None
    note: str = ""


def describe(chip: Chip) -> tuple[Fact, ...]:
    """Everything the catalog knows of a chip, unknown facts included, provenance last.

    >>> from torchledger.machine.matching import get
    >>> [(fact.value, fact.sparse) for fact in describe(get("h100")) if fact.what == "bf16 peak"]
    [(989400000000000.0, 1978800000000000.0)]
    """
    return (
        Fact("name", chip.name, note=f"also: {', '.join(chip.aliases)}" if chip.aliases else ""),
        Fact("vendor", chip.vendor),
        Fact("architecture", chip.architecture),
        Fact("year", chip.year),
        Fact("form factor", chip.form_factor),
        *_peaks(chip),
        *(Fact(f"{fmt} peak", None, note="the chip does not run it") for fmt in chip.lacks),
        *_memory(chip),
        *_link("scale-up link", chip.scale_up),
        Fact("chips per island", chip.chips_per_island),
        *_link("typical network", chip.network),
        Fact("power", chip.tdp_w, "W"),
        *(Fact(f"{each.what} in print", each.value, _unit_of(each.what), note=each.by) for each in chip.quoted),
        Fact("confidence", chip.confidence),
        Fact("source", chip.source),
        Fact("date", chip.date),
        Fact("notes", chip.notes),
    )


def _peaks(chip: Chip) -> Iterator[Fact]:
    for peak in chip.peaks:
        fmt = peak.number_format
        note = ""
        if peak.sparse_flops_per_s is not None:
            note = (
                f"sparse: with {chip.sparsity.pattern} sparsity"
                if chip.sparsity
                else "sparse: with structured sparsity"
            )
        yield Fact(f"{fmt} peak", peak.dense_flops_per_s, _unit_of(f"dense.{fmt}"), peak.sparse_flops_per_s, note)
        if peak.measured_flops_per_s is not None:
            note = f"measured: {chip.measured_source or 'source not stated'}"
            yield Fact(f"{fmt} largest matmul", peak.measured_flops_per_s, _unit_of(f"dense.{fmt}"), note=note)


def _memory(chip: Chip) -> Iterator[Fact]:
    yield Fact("memory kind", chip.memory_kind)
    yield Fact("memory, nominal", chip.memory_bytes_nominal, "B", note="as sold: decimal gigabytes")
    yield Fact("memory, reported", chip.memory_bytes_reported, "B", note="by the driver (nvidia-smi)")
    yield Fact("memory bandwidth", chip.memory_bandwidth, "B/s")


def _link(what: str, link: Link | None) -> Iterator[Fact]:
    if link is None:
        yield Fact(what, None, "B/s")
        return
    note = "no peer to peer: through host memory" if link.peer_to_peer is False else ""
    yield Fact(what, link.bytes_per_s_per_direction, "B/s", note=f"{link.name}, per direction{'; ' * bool(note)}{note}")
    if link.bytes_per_s_per_peer is not None:
        yield Fact(f"{what}, to one peer", link.bytes_per_s_per_peer, "B/s", note="per direction")


def _unit_of(field: str) -> str:
    table, _, fact = field.partition(".")
    if table in {"dense", "sparse", "measured"}:
        return "op/s" if fact == "int8" else "FLOP/s"
    return "B/s" if fact.startswith("bytes_per_s") else ""
