"""The two modules that hold matrices: torch's own, made without values, which `init` alone draws."""

from typing import Protocol, Self

from torch import Tensor, nn
from torch.nn import functional

from torchledger.trainer.fp8 import fp8_linear
from torchledger.trainer.held import held

__all__ = ["ADAPTER_ALPHA", "Embedding", "Linear", "SplitTable"]

#: An adapter of rank r counts 16/r times (LoRA, arXiv:2106.09685, section 4.1: α/r, with α left alone when r changes;
#: 16 in QLoRA, arXiv:2305.14314, appendix B.2), so that its update is as large at any rank.
ADAPTER_ALPHA = 16.0


class Linear(nn.Linear):
    """`nn.Linear` whose weight [out, in] and bias [out] hold no values yet.

    torch's constructor draws values that would be thrown away, which costs seconds for a large model and moves the
    global random stream. The type stays a subclass so that whatever handles `nn.Linear` handles it.

    Attributes:
        rank: of the low-rank adapter beside it; 0 is none.
        is_narrow: whether its own products run in FP8; an adapter's never do.
        sums: whether this rank's gradients of what it holds whole are shares of a sum over ranks (`held`).
        is_adding: whether this rank adds the bias: of ranks whose results are added up, one does.
    """

    rank: int = 0
    is_narrow: bool = False
    sums: bool = False
    is_adding: bool = True

    @classmethod
    def tied(cls, weight: Tensor, *, bias: bool) -> Self:
        """A map with the weight [out, in] of another module; a matrix of its own, to be thrown away, is never made."""
        out_features, in_features = weight.shape
        made = cls(in_features, 0, bias=False)
        made.out_features, made.weight = out_features, weight
        if bias:
            made.bias = nn.Parameter(weight.new_empty(out_features))
        return made

    def reset_parameters(self) -> None:
        """Draw nothing."""

    def adapt(self, rank: int) -> None:
        """Add s·B A beside the weight, A [rank, in] and B [out, rank] (LoRA, equation 3), without values yet."""
        device, dtype = self.weight.device, self.weight.dtype
        self.rank = rank
        self.lora_a = Linear(self.in_features, rank, bias=False, device=device, dtype=dtype)
        self.lora_b = Linear(rank, self.out_features, bias=False, device=device, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        """The map, and the adapter's if there is one."""
        weight = held(self.weight, sums=self.sums)
        bias: Tensor | None = held(self.bias, sums=self.sums)
        if bias is not None and not self.is_adding:
            bias = bias - bias.detach()  # 0, with the gradient that every rank finds
        y = fp8_linear(input, weight, bias) if self.is_narrow else functional.linear(input, weight, bias)
        if not self.rank:
            return y
        beside: Tensor = self.lora_b(self.lora_a(input))
        return y + beside * (ADAPTER_ALPHA / self.rank)


class SplitTable(Protocol):
    """How ranks work together that each have some rows of a table, or some of the tokens (`parallel_table`)."""

    def look_up(self, ids: Tensor, weight: Tensor) -> Tensor:
        """What this rank's part of the stream needs of the table.

        Args:
            ids: of all tokens.
            weight: what this rank has of the table.
        """
        ...


class Embedding(nn.Embedding):
    """`nn.Embedding` whose table [rows, width] holds no values yet.

    Attributes:
        split: how ranks share its rows or its tokens; nothing where this process has all.
        sums: whether this rank's gradient of a whole table is a share of a sum over ranks (`held`).
    """

    split: SplitTable | None = None
    sums: bool = False

    def reset_parameters(self) -> None:
        """Draw nothing."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        """The rows of these numbers."""
        weight = held(self.weight, sums=self.sums)
        return functional.embedding(input, weight) if self.split is None else self.split.look_up(input, weight)
