"""AdamW whose running averages are 8-bit numbers in blocks, each with an FP32 scale."""

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from torchledger.formula.optimizer import BLOCK_8BIT, CHUNK_8BIT, SMALLEST_8BIT

__all__ = ["AdamW8Bit", "decoded", "encode", "table"]


@functools.lru_cache
def table(*, signed: bool) -> tuple[float, ...]:
    """The 256 values of dynamic tree quantization, ascending (Dettmers et al., arXiv:2110.02861, section 1.3).

    Decades 10⁻⁶ to 1; the decade 10^(i-6) has 2^i values, equally spaced within (0.1, 1)·10^(i-6), with both signs or
    twice as many; then 0 and 1.

    >>> len(set(table(signed=True))), len(set(table(signed=False)))
    (256, 256)
    """
    values = [0.0, 1.0]
    for i in range(7):
        count = 2**i * (1 if signed else 2)
        decade = [10.0 ** (i - 6) * (0.1 + 0.9 * (2 * j + 1) / (2 * count)) for j in range(count)]
        values += decade + ([-value for value in decade] if signed else [])
    return tuple(sorted(values))


def encode(
    values: Float[Tensor, " elements"],
    codes: UInt8[Tensor, " elements"],
    scales: Float[Tensor, " blocks"],
    *,
    signed: bool,
) -> None:
    """Write the largest magnitude of each block, and for each element the nearest value of the table over it.

    `values` are divided by their block's scale in place: they are as large as what is saved, and not needed again.
    """
    for part, scale in _by_block(values, scales):
        torch.linalg.vector_norm(part, torch.inf, dim=1, keepdim=True, out=scale)
        part.div_(scale.clamp(min=torch.finfo(torch.float32).tiny))
    known = torch.tensor(table(signed=signed), device=values.device)
    codes.copy_(torch.bucketize(values, (known[1:] + known[:-1]) / 2, out_int32=True))


def decoded(
    codes: UInt8[Tensor, " elements"], scales: Float[Tensor, " blocks"], *, signed: bool
) -> Float[Tensor, " elements"]:
    """The FP32 numbers that codes stand for."""
    known = torch.tensor(table(signed=signed), device=codes.device)
    values = torch.index_select(known, 0, codes.int())
    for part, scale in _by_block(values, scales):
        part.mul_(scale)
    return values


@dataclass(frozen=True, slots=True)
class AdamW8Bit:
    """AdamW, its averages in 8 bit; those of small tensors in FP32, as bitsandbytes has it."""

    beta1: float
    beta2: float
    epsilon: float

    def initial_state(self, parameter: Tensor, moment: torch.dtype) -> dict[str, Tensor]:  # noqa: ARG002  # 8 bit always
        """Codes and scales of both averages, or the averages; the number of updates."""
        step = torch.zeros((), dtype=torch.float32)
        elements, device = parameter.numel(), parameter.device
        if elements < SMALLEST_8BIT:
            wide = [torch.zeros(parameter.shape, dtype=torch.float32, device=device) for _ in range(2)]
            return {"step": step, "exp_avg": wide[0], "exp_avg_sq": wide[1]}
        found = {"step": step}
        for name, signed in (("exp_avg", True), ("exp_avg_sq", False)):
            zero = table(signed=signed).index(0.0)
            found[f"{name}_codes"] = torch.full((elements,), zero, dtype=torch.uint8, device=device)
            found[f"{name}_scales"] = torch.zeros(-(-elements // BLOCK_8BIT), device=device)
        return found

    def update(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Tensor], learning_rate: float, decay: float
    ) -> None:
        """AdamW's update, of so many elements at once as are worth widening."""
        step = state["step"]
        step += 1
        number = step.item()  # on the CPU, and known on fake tensors too
        if decay:
            parameter.mul_(1 - learning_rate * decay)
        if "exp_avg" in state:
            self._move(parameter, gradient, state["exp_avg"], state["exp_avg_sq"], learning_rate, number)
            return
        weights, gradients = parameter.view(-1), gradient.reshape(-1)
        for begin in range(0, len(weights), CHUNK_8BIT):
            part, blocks = (
                slice(begin, begin + CHUNK_8BIT),
                slice(begin // BLOCK_8BIT, (begin + CHUNK_8BIT) // BLOCK_8BIT),
            )
            mean, square = (
                decoded(state[f"{name}_codes"][part], state[f"{name}_scales"][blocks], signed=signed)
                for name, signed in (("exp_avg", True), ("exp_avg_sq", False))
            )
            self._move(weights[part], gradients[part], mean, square, learning_rate, number)
            for name, value, signed in (("exp_avg", mean, True), ("exp_avg_sq", square, False)):
                encode(value, state[f"{name}_codes"][part], state[f"{name}_scales"][blocks], signed=signed)

    def _move(  # noqa: PLR0917  # what AdamW's update is made of
        self, parameter: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, learning_rate: float, number: float
    ) -> None:
        mean.lerp_(gradient, 1 - self.beta1)
        square.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        denominator = square.sqrt().div_(math.sqrt(1 - self.beta2**number)).add_(self.epsilon)
        parameter.addcdiv_(mean, denominator, value=-learning_rate / (1 - self.beta1**number))


def _by_block(values: Tensor, scales: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Views [blocks, elements] with their scales [blocks, 1]: the whole blocks, then what is left of the last."""
    whole = len(values) // BLOCK_8BIT
    if whole:
        yield values[: whole * BLOCK_8BIT].view(whole, BLOCK_8BIT), scales[:whole].view(whole, 1)
    if len(values) % BLOCK_8BIT:
        yield values[whole * BLOCK_8BIT :].view(1, -1), scales[whole:].view(1, 1)
