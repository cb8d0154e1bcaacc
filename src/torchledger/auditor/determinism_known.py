"""Operations that torch itself documents as not repeating bit for bit, matched against those of a run."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from torchledger.auditor.determinism_watch import Seen

Device: TypeAlias = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class Known:
    """One documented case.

    Attributes:
        what: in words.
        devices: where.
        mode: what `torch.use_deterministic_algorithms(True)` does: take an `alternative` kernel, or `refuses`.
        operations: torch's operators, with their overload where it matters.
        arguments: what the arguments that are no tensors have to match; nothing for any.
        floating: whether a result has to be of floating point.
        source: where it is documented.
    """

    what: str
    devices: tuple[str, ...]
    mode: Literal["alternative", "refuses"]
    operations: frozenset[str]
    arguments: re.Pattern[str] | None
    floating: bool
    source: str

    def matches(self, seen: Seen) -> bool:
        """Whether an operation of a run is a case of this."""
        name = seen.op.removeprefix("aten.")
        if self.operations.isdisjoint((name, name.partition(".")[0])):
            return False
        if self.arguments is not None and self.arguments.search(seen.arguments) is None:
            return False
        return not self.floating or any(shape.startswith(("float", "bfloat")) for shape in seen.shapes)


@dataclass(frozen=True, slots=True)
class Found:
    """A documented case in a run.

    Attributes:
        known: the case.
        times: operations of the run that are one.
        first: the first of them.
        modules: paths of the modules that ran them, at most eight.
    """

    known: Known
    times: int
    first: Seen
    modules: tuple[str, ...]


@functools.cache
def known_operations() -> tuple[Known, ...]:
    """The list, from `determinism_known.toml`."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple(
        Known(
            what=row["what"],
            devices=tuple(row["devices"]),
            mode=row["mode"],
            operations=frozenset(row["operations"]),
            arguments=re.compile(row["arguments"]) if "arguments" in row else None,
            floating=row.get("floating", False),
            source=row.get("source", table["source"]),
        )
        for row in table["known"]
    )


def known_in(seen: Iterable[Seen], device: Device) -> tuple[Found, ...]:
    """The documented cases of a device among the operations of a run, in the order of the list."""
    operations = list(seen)
    found = []
    for known in known_operations():
        if device not in known.devices:
            continue
        matching = [each for each in operations if known.matches(each)]
        if matching:
            modules = tuple(dict.fromkeys(each.module for each in matching))[:8]
            found.append(Found(known, len(matching), matching[0], modules))
    return tuple(found)
