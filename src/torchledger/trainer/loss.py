"""Cross-entropy of a head for so many tokens at a time; and losses that count beside it, but are not told."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from torchledger.trainer.targets import IGNORED

__all__ = ["LossInPieces", "Vocabulary", "beside", "capped"]


def capped(logits: Float[Tensor, "*tokens vocabulary"], cap: float | None) -> Float[Tensor, "*tokens vocabulary"]:
    """Logits held within ±cap by cap·tanh(logits / cap) (Gemma 2, arXiv:2408.00118, section 2); as they are without."""
    return logits if cap is None else torch.tanh(logits / cap) * cap


def beside(loss: Float[Tensor, ""], others: Sequence[Float[Tensor, ""]]) -> Float[Tensor, ""]:
    """`loss` to the bit, with a gradient as of the sum of it and the others."""
    if not others:
        return loss
    other = others[0] if len(others) == 1 else torch.stack(list(others)).sum()
    total: Tensor = _Beside.apply(loss, other)  # type: ignore[no-untyped-call]
    return total


class Vocabulary(Protocol):
    """Ranks that each have the logits of some rows of the vocabulary, and what they tell each other of a token."""

    @property
    def first(self) -> int:
        """Number of this rank's first row."""
        ...

    def largest(self, mine: Float[Tensor, " tokens"]) -> Float[Tensor, " tokens"]:
        """The largest of all ranks' numbers."""
        ...

    def added(self, mine: Float[Tensor, " tokens"]) -> Float[Tensor, " tokens"]:
        """All ranks' numbers, added up."""
        ...


class LossInPieces(nn.Module):
    """Mean cross-entropy of a head, with the logits of `chunk` tokens alive at a time.

    Each piece's gradient is computed with its loss, so that its logits are not needed again: no matmul runs twice, and
    what waits for the backward pass is the gradient of the head and of what it reads (as in Liger Kernel's fused linear
    cross-entropy, arXiv:2410.10989, section 3.2). Equal to the loss of all tokens at once up to rounding.

    Args:
        chunk: tokens of a piece; the last one is what remains.
        cap: soft-cap of the logits.
    """

    def __init__(self, chunk: int, cap: float | None) -> None:
        super().__init__()
        self.chunk, self.cap = chunk, cap

    def forward(
        self,
        h: Float[Tensor, "tokens hidden"],
        weight: Float[Tensor, "vocabulary hidden"],
        bias: Float[Tensor, " vocabulary"] | None,
        targets: Int[Tensor, " tokens"],
        split: Vocabulary | None = None,
    ) -> Float[Tensor, ""]:
        """In nats; a target of -100 does not count.

        Args:
            h: what the head reads.
            weight: the head's.
            bias: the head's, if it has one.
            targets: one for each token.
            split: how ranks share the rows of `weight`, of which this one has its own; nothing where it has all. The
                gradient of `h` is then this rank's share of a sum.
        """
        device = h.device.type
        is_autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if is_autocast else h.dtype
        loss: Tensor = _InPieces.apply(h, weight, bias, targets, self.cap, self.chunk, dtype, split)  # type: ignore[no-untyped-call]
        return loss


class _InPieces(torch.autograd.Function):
    """The loss, and already in the forward pass the gradients of what it reads, if any is needed."""

    @staticmethod
    def forward(  # noqa: PLR0917  # autograd takes no names
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        cap: float | None,
        chunk: int,
        dtype: torch.dtype,
        split: Vocabulary | None,
    ) -> Tensor:
        needed = ctx.needs_input_grad[:3]
        w, b = weight.to(dtype), None if bias is None else bias.to(dtype)
        count = (targets != IGNORED).sum().clamp(min=1)
        d_h = torch.empty_like(h) if needed[0] else None
        d_weight, d_bias = None, None
        losses = []
        for start in range(0, len(h), chunk):
            x = h[start : start + chunk].to(dtype)
            piece = targets[start : start + chunk]
            loss, d_logits = _piece(x, w, b, piece, cap, count, split, differentiated=any(needed))
            losses.append(loss)
            if d_h is not None:
                d_h[start : start + chunk] = d_logits @ w
            if needed[1]:
                d_weight = _added(d_weight, (d_logits.T @ x).to(weight.dtype))
            if bias is not None and needed[2]:
                d_bias = _added(d_bias, d_logits.sum(0).to(bias.dtype))
            del d_logits  # or it would be alive beside those of the next piece
        ctx.save_for_backward(*(each for each in (d_h, d_weight, d_bias) if each is not None))
        return torch.stack(losses).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        found = iter(ctx.saved_tensors)
        # In place: a head's gradient is large, and nobody else has it.
        return (*(next(found).mul_(gradient) if needed else None for needed in ctx.needs_input_grad[:3]), *(None,) * 5)


def _added(before: Tensor | None, more: Tensor) -> Tensor:
    return more if before is None else before.add_(more)


def _piece(  # noqa: PLR0917  # what a piece is made of
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    cap: float | None,
    count: Tensor,
    split: Vocabulary | None,
    *,
    differentiated: bool,
) -> tuple[Tensor, Tensor]:
    """What a piece adds to the mean, and the gradient of its logits in the format of `x`: softmax - 1 at the target."""
    logits = functional.linear(x, weight, bias)
    inner = None
    if cap is not None:
        inner = torch.tanh(logits / cap)
        logits = inner * cap
    if split is None:
        mine, logs = targets, torch.log_softmax(logits.float(), dim=-1)
        loss = functional.nll_loss(logs, mine, reduction="sum", ignore_index=IGNORED) / count
    else:
        mine, logs = _mine(targets, split, logits.shape[1]), _log_softmax(logits.float(), split)
        losses = functional.nll_loss(logs, mine, reduction="none", ignore_index=IGNORED)
        loss = split.added(losses).sum() / count
    if not differentiated:
        return loss, logs
    d_logits = logs.exp_()
    counts = (mine != IGNORED).unsqueeze(1)
    d_logits.scatter_add_(1, mine.clamp(min=0).unsqueeze(1), -counts.to(logs.dtype))
    if split is not None:
        counts = (targets != IGNORED).unsqueeze(1)
    d_logits.mul_(counts / count)
    if inner is not None:
        d_logits.mul_(1 - inner.float().square())
    return loss, d_logits.to(x.dtype)


def _mine(targets: Int[Tensor, " tokens"], split: Vocabulary, rows: int) -> Int[Tensor, " tokens"]:
    """Targets by this rank's own rows; those that other ranks have do not count here."""
    local = targets - split.first
    return local.masked_fill_((local < 0) | (local >= rows), IGNORED)


def _log_softmax(logits: Float[Tensor, "tokens rows"], split: Vocabulary) -> Float[Tensor, "tokens rows"]:
    """This rank's share of log softmax over the whole vocabulary; in place."""
    logits.sub_(split.largest(logits.amax(dim=-1)).unsqueeze(1))
    return logits.sub_(split.added(logits.exp().sum(dim=-1)).log_().unsqueeze(1))


class _Beside(torch.autograd.Function):
    """The first as it is; a gradient for both."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, other: Tensor) -> Tensor:  # noqa: ARG004  # autograd's signature
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG004
        return gradient, gradient
