"""`Convention`: how FLOPs are reported. Lines store what happened; a convention chooses when a number is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torchledger.ledger.line import CONTRACTIONS, Line
from torchledger.ledger.work import Amount


class ConventionMismatch(ValueError):
    """Two ledgers under different conventions were put into one sum or difference."""


@dataclass(frozen=True, slots=True)
class Convention:
    """How FLOPs are reported.

    Attributes:
        operations: `contractions` counts matmul, attention and convolution only (what MFU means, PaLM appendix B,
            arXiv:2204.02311); `all` counts one add, multiply or compare as 1 as well (transcendentals stay apart).
        attention: the full square, `exact` with the mask counted pair by pair, or what the kernel `executed`.
        embedding: whether the embedding lookup counts as the one-hot matmul it replaces (2·tokens·V·D).
        recompute: whether recomputed forward passes count: in for hardware FLOPs (HFU), out for model FLOPs (MFU).
    """

    operations: Literal["contractions", "all"] = "contractions"
    attention: Literal["full", "exact", "executed"] = "full"
    embedding: bool = False
    recompute: bool = False

    def flops(self, line: Line) -> Amount:
        """FLOPs of all times of `line` under this convention; `None` where the line does not know.

        >>> from torchledger.ledger.work import Work
        >>> line = Line("mlp.up", "matmul", Work.of_flops(8), "matmul", times=3)
        >>> Convention().flops(line), Convention(operations="all").flops(line)
        (24, 24)
        """
        if line.phase == "recompute" and not self.recompute:
            return 0
        if line.kind == "embedding" and self.embedding:
            return _one_hot_matmul(line)
        if line.kind not in CONTRACTIONS and line.kind != "unknown" and self.operations == "contractions":
            return 0
        work = line.work
        flops = {"full": work.flops_full, "exact": work.flops_exact, "executed": work.flops_executed}[self.attention]
        return None if flops is None else flops * line.times

    @property
    def text(self) -> str:
        """The convention in words, printed under every table.

        >>> Convention().text
        'contractions only, 2 a multiply-add, attention full, embedding lookup out, recompute out'
        """
        operations = "contractions only" if self.operations == "contractions" else "all operations"
        embedding = "in" if self.embedding else "out"
        recompute = "in" if self.recompute else "out"
        return (
            f"{operations}, 2 a multiply-add, attention {self.attention}, "
            f"embedding lookup {embedding}, recompute {recompute}"
        )


#: Model FLOPs, the numerator of MFU.
MODEL_FLOPS = Convention()
#: Hardware FLOPs, the numerator of HFU: what really runs, recompute included.
HARDWARE_FLOPS = Convention(attention="executed", recompute=True)


def _one_hot_matmul(line: Line) -> Amount:
    sizes = dict(line.shape)
    if not {"tokens", "vocabulary", "hidden"} <= sizes.keys():
        return None
    return 2 * sizes["tokens"] * sizes["vocabulary"] * sizes["hidden"] * line.times
