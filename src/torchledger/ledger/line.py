"""`Line`: one piece of `Work` and its place in the run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from torchledger.ledger.work import Amount, Work

Phase: TypeAlias = Literal["forward", "backward", "recompute", "optimizer", "communication"]
Kind: TypeAlias = Literal[
    "matmul",
    "attention",
    "convolution",
    "pointwise",
    "normalization",
    "reduction",
    "linalg",
    "fft",
    "loss",
    "embedding",
    "gather",
    "copy",
    "random",
    "optimizer",
    "collective",
    "unknown",
]
GradientOf: TypeAlias = Literal["input", "weight", "none"]
Origin: TypeAlias = Literal["formula", "trace", "measured", "difference"]

#: The kinds that contract an index: what MFU counts by default.
CONTRACTIONS: frozenset[str] = frozenset({"matmul", "attention", "convolution"})

Shape: TypeAlias = tuple[tuple[str, Amount], ...]
Account: TypeAlias = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the books.

    Attributes:
        module: path of the module that ran it; `*` stands for every index (`layers.*.mlp.up`); "" is the step itself.
        op: canonical name of the operation (`matmul`, `attention`, `rms_norm`, `adamw` ...).
        work: what *one* time costs.
        kind: class of operation, by which a convention chooses.
        phase: when in the step it runs.
        gradient_of: in the backward pass, whether it makes the gradient of an input or of a weight.
        number_format: format that the arithmetic runs in (`fp32`, `bf16` ...).
        shape: named sizes, for instance `(("b", 1), ("m", 64), ("n", 64), ("k", 32))`: efficiency depends on it.
        times: how many times it runs in one step.
        origin: how the figure was got.
        source: source line of the user's code, `file.py:12`, where known.
    """

    module: str
    op: str
    work: Work
    kind: Kind
    phase: Phase = "forward"
    gradient_of: GradientOf = "none"
    number_format: str = "fp32"
    shape: Shape = ()
    times: Amount = 1
    origin: Origin = "formula"
    source: str = ""

    @property
    def account(self) -> Account:
        """Place, kind and format: what two ledgers are matched on. Never origin, op or source.

        The op is left out because the same computation may run as one kernel or as three.
        """
        return (self.module, self.phase, self.gradient_of, self.kind, self.number_format)

    @property
    def total(self) -> Work:
        """The work of all its times."""
        total: Work = self.work * self.times
        return total

    @property
    def name(self) -> str:
        """A short name for messages: `layers.*.mlp.up matmul backward/weight bf16`."""
        direction = f"/{self.gradient_of}" if self.gradient_of != "none" else ""
        return f"{self.module or '(step)'} {self.op} {self.phase}{direction} {self.number_format}"

    def repeated(self, times: Amount) -> Line:
        """The same line, run `times` as often."""
        return replace(self, times=self.times * times)
