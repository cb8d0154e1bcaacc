"""`Ledger`: the lines of one training step, their sums and their differences.

Sums keep every line; a difference is taken account by account (place, kind and format, never origin), so a predicted
and a measured ledger subtract although one has a fused kernel where the other has three.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from torchledger.ledger import display
from torchledger.ledger.convention import Convention, ConventionMismatch
from torchledger.ledger.line import Account, Line
from torchledger.ledger.work import NO_WORK, WORK_FIELDS, Amount, Work, total

GroupBy: TypeAlias = Literal[
    "module", "op", "phase", "kind", "number_format", "gradient_of", "origin", "source", "shape"
]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ledger:
    """Lines under one convention.

    Two ledgers are equal when they have the same convention and the same balance: the same work in every account.

    Attributes:
        lines: the rows.
        convention: how `flops` is read.
        assumptions: what was assumed on the way, printed with every answer.
    """

    lines: tuple[Line, ...] = ()
    convention: Convention = field(default_factory=Convention)
    assumptions: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, lines: Iterable[Line], *, convention: Convention | None = None, assumptions: Iterable[str] = ()
    ) -> Ledger:
        """A ledger of any iterable of lines; equal lines (all but `times`) are entered once with their times added."""
        return cls(_merged(lines), convention or Convention(), tuple(dict.fromkeys(assumptions)))

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def total(self) -> Work:
        """The work of all lines. A field that one line does not know is unknown in the total too."""
        return total(line.total for line in self.lines)

    @property
    def flops(self) -> Amount:
        """FLOPs under the ledger's convention, `None` if a line that counts does not know its own."""
        counted: Amount = 0
        for line in self.lines:
            flops = self.convention.flops(line)
            if flops is None:
                return None
            counted = counted + flops
        return counted

    @property
    def unknown_lines(self) -> tuple[Line, ...]:
        """The lines that have an unknown field, or an operation without a rule."""
        return tuple(line for line in self.lines if line.work.unknown_fields or line.kind == "unknown")

    @property
    def is_complete(self) -> bool:
        """Whether every operation had a rule. A ledger that is not says *incomplete* wherever it is shown."""
        return not any(line.kind == "unknown" or line.work.flops_full is None for line in self.lines)

    def under(self, convention: Convention) -> Ledger:
        """The same lines read under another convention."""
        return replace(self, convention=convention)

    def where(self, predicate: Callable[[Line], bool] | None = None, **fields: Any) -> Ledger:
        """The lines whose fields have the given values (a tuple or set means any of them) and that `predicate` accepts.

        >>> ledger = Ledger((Line("a", "matmul", Work.of_flops(2), "matmul"), Line("b", "add", Work(), "pointwise")))
        >>> len(ledger.where(kind="matmul")), len(ledger.where(kind={"matmul", "pointwise"}))
        (1, 2)
        """
        return replace(self, lines=tuple(line for line in self.lines if _accepts(line, predicate, fields)))

    def by(self, *names: GroupBy, depth: int | None = None) -> dict[Any, Ledger]:
        """One ledger for each value of a field (or tuple of values), in order of appearance; they sum to the whole.

        `depth` cuts module paths to their first components: `layers.*.mlp.up` at depth 2 is `layers.*`.
        """
        groups: dict[Any, list[Line]] = {}
        for line in self.lines:
            values = tuple(_cut(line.module, depth) if name == "module" else getattr(line, name) for name in names)
            groups.setdefault(values[0] if len(values) == 1 else values, []).append(line)
        return {key: replace(self, lines=tuple(lines)) for key, lines in groups.items()}

    def by_purpose(self) -> dict[str, Ledger]:
        """One ledger for what the work is for, in this order; those without lines are left out.

        forward, input gradient, weight gradient, other backward (no contraction), recompute, optimizer, communication.
        """
        groups: dict[str, list[Line]] = {purpose: [] for purpose in _PURPOSES}
        for line in self.lines:
            groups[_purpose(line)].append(line)
        return {purpose: replace(self, lines=tuple(lines)) for purpose, lines in groups.items() if lines}

    def folded(self) -> Ledger:
        """Equal layers as one: every index in a module path becomes `*` and equal lines are entered once.

        >>> lines = [Line(f"layers.{i}.mlp", "matmul", Work.of_flops(2), "matmul") for i in range(3)]
        >>> [(line.module, line.times) for line in Ledger.of(lines).folded()]
        [('layers.*.mlp', 3)]
        """
        return replace(self, lines=_merged(replace(line, module=fold_path(line.module)) for line in self.lines))

    def accounts(self) -> dict[Account, Work]:
        """Total work by account."""
        return _accounts(self.lines)

    def balance(self) -> dict[Account, Work]:
        """Total work by account, accounts that are known to be zero left out."""
        return {account: work for account, work in self.accounts().items() if not work.is_zero}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        return self.convention == other.convention and self.balance() == other.balance()

    __hash__ = None  # type: ignore[assignment]  # equality is by balance, and a balance is a dict

    def __add__(self, other: Ledger) -> Ledger:
        self._same_convention(other, "added")
        return Ledger.of(
            (*self.lines, *other.lines),
            convention=self.convention,
            assumptions=(*self.assumptions, *other.assumptions),
        )

    def __mul__(self, times: Amount) -> Ledger:
        return replace(self, lines=tuple(line.repeated(times) for line in self.lines))

    __rmul__ = __mul__

    def __sub__(self, other: Ledger) -> Ledger:
        """Account by account. An account that is unknown on either side stays unknown, and its line names it.

        Embedding lookups are subtracted line by line, `other`'s with negative times: a convention that counts them as
        one-hot products reads their FLOPs off their shape, which a sum over an account no longer has.
        """
        self._same_convention(other, "subtracted")
        mine, theirs = _accounts(self._without_lookups()), _accounts(other._without_lookups())
        names = {line.account: line.op for line in (*other.lines, *self.lines)}
        lines = [
            _difference_line(account, names[account], mine.get(account, NO_WORK) - theirs.get(account, NO_WORK))
            for account in dict.fromkeys((*mine, *theirs))
        ]
        return Ledger(
            (*(line for line in lines if not line.work.is_zero), *_lookup_differences(self, other)),
            self.convention,
            tuple(dict.fromkeys((*self.assumptions, *other.assumptions))),
        )

    def _without_lookups(self) -> Iterator[Line]:
        return (line for line in self.lines if line.kind != "embedding")

    def _same_convention(self, other: Ledger, verb: str) -> None:
        if self.convention != other.convention:
            raise ConventionMismatch(
                f"ledgers under different conventions cannot be {verb}: "
                f"({self.convention.text}) and ({other.convention.text}); read one with .under(convention) first"
            )

    def __repr__(self) -> str:
        state = "" if self.is_complete else ", incomplete"
        return f"<Ledger {len(self.lines)} lines, {self.flops} FLOPs{state}; {self.convention.text}>"

    def __str__(self) -> str:
        return display.render(self, "text") or repr(self)

    def _repr_html_(self) -> str | None:
        return display.render(self, "html")


_PURPOSES = (
    "forward", "input gradient", "weight gradient", "other backward", "recompute", "optimizer", "communication"
)  # fmt: skip


def _purpose(line: Line) -> str:
    if line.phase == "backward":
        return "other backward" if line.gradient_of == "none" else f"{line.gradient_of} gradient"
    return line.phase


def fold_path(path: str) -> str:
    """Every numeric component of a module path as `*`.

    >>> fold_path("layers.12.mlp.experts.3.up")
    'layers.*.mlp.experts.*.up'
    """
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", path)


def _cut(path: str, depth: int | None) -> str:
    return path if depth is None else ".".join(path.split(".")[:depth])


def _accepts(line: Line, predicate: Callable[[Line], bool] | None, wanted: dict[str, Any]) -> bool:
    for name, value in wanted.items():
        mine = getattr(line, name)
        if mine not in value if isinstance(value, (set, frozenset, tuple, list)) else mine != value:
            return False
    return predicate is None or predicate(line)


def _merged(lines: Iterable[Line]) -> tuple[Line, ...]:
    seen: dict[Any, Line] = {}
    for line in lines:
        key = replace(line, times=1)
        before = seen.get(key)
        seen[key] = line if before is None else replace(before, times=before.times + line.times)
    return tuple(seen.values())


def _accounts(lines: Iterable[Line]) -> dict[Account, Work]:
    works: dict[Account, Work] = {}
    for line in lines:
        works[line.account] = works.get(line.account, NO_WORK) + line.total
    return works


def _lookup_differences(one: Ledger, other: Ledger) -> Iterator[Line]:
    lookups = [line for line in one.lines if line.kind == "embedding"]
    lookups += [line.repeated(-1) for line in other.lines if line.kind == "embedding"]
    for line in _merged(replace(line, origin="difference", source="") for line in lookups):
        if line.times != 0 or line.work.unknown_fields:
            yield line


def _difference_line(account: Account, op: str, work: Work) -> Line:
    module, phase, gradient_of, kind, number_format = account
    return Line(module, op, work, kind, phase, gradient_of, number_format, origin="difference")  # type: ignore[arg-type]


assert len(WORK_FIELDS) == 8, "rows.py, the CSV header and the docs name eight fields"
