"""AdamW whose running averages are 8-bit numbers in blocks, each with an FP32 scale."""

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from torchledger.formula.optimizer import BLOCK_8BIT, CHUNK_8BIT, SMALLEST_8BIT
from torchledger.trainer.in_shares import Shares, gathered, mine

__all__ = ["AdamW8Bit", "decoded", "encode", "table"]

#: The two averages, and whether they have signs.
_AVERAGES = (("exp_avg", True), ("exp_avg_sq", False))
#: Elements that a rank widens at once where it needs a block's number for each: eight bytes more.
_CHUNK_OF_SHARE = CHUNK_8BIT // 8


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
        part.div_(_divisor(scale))
    _nearest(values, codes, signed=signed)


def decoded(
    codes: UInt8[Tensor, " elements"], scales: Float[Tensor, " blocks"], *, signed: bool
) -> Float[Tensor, " elements"]:
    """The FP32 numbers that codes stand for."""
    values = _looked_up(codes, signed=signed)
    for part, scale in _by_block(values, scales):
        part.mul_(scale)
    return values


@dataclass(frozen=True, slots=True)
class AdamW8Bit:
    """AdamW, its averages in 8 bit; those of small tensors in FP32, as bitsandbytes has it.

    Where ranks share a tensor, blocks are those of the whole one, so that updates are those of one process bit for bit
    and a checkpoint fits any number of ranks. A block that several ranks have parts of takes the largest of all: they
    tell each other the scales, 2·4 bytes for 2,048 elements, and keep a share of them.
    """

    beta1: float
    beta2: float
    epsilon: float

    def initial_state(self, parameter: Tensor, moment: torch.dtype) -> dict[str, Tensor]:  # noqa: ARG002  # 8 bit always
        """Codes and scales of both averages, or the averages; the number of updates."""
        step = torch.zeros((), dtype=torch.float32)
        elements, device, shares = parameter.numel(), parameter.device, Shares.of(parameter)
        if elements < SMALLEST_8BIT:
            wide = [torch.zeros_like(parameter, dtype=torch.float32) for _ in range(2)]
            return {"step": step, "exp_avg": wide[0], "exp_avg_sq": wide[1]}
        found, blocks = {"step": step}, -(-elements // BLOCK_8BIT)
        for name, signed in _AVERAGES:
            zero = table(signed=signed).index(0.0)
            if shares is None:
                found[f"{name}_codes"] = torch.full(parameter.shape, zero, dtype=torch.uint8, device=device)
                found[f"{name}_scales"] = torch.zeros(blocks, device=device)
            else:
                found[f"{name}_codes"] = shares.beside(parameter.shape, torch.uint8, zero)
                found[f"{name}_scales"] = shares.in_turn(blocks, torch.float32)
        return found

    def update(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Tensor], learning_rate: float, decay: float
    ) -> None:
        """AdamW's update, of so many elements at once as are worth widening."""
        step = state["step"]
        step += 1
        number = step.item()  # on the CPU, and known on fake tensors too
        shares, weights, gradients = Shares.of(parameter), mine(parameter), mine(gradient)
        if decay:
            weights.mul_(1 - learning_rate * decay)
        if "exp_avg" in state:
            mean, square = mine(state["exp_avg"]), mine(state["exp_avg_sq"])
            self._average(gradients, mean, square)
            self._move(weights, mean, square, learning_rate, number)
        elif shares is None:
            self._update_whole(weights.view(-1), gradients.reshape(-1), state, learning_rate, number)
        else:
            self._update_share(weights, gradients, state, learning_rate, number, shares)

    def _update_whole(
        self, weights: Tensor, gradients: Tensor, state: Mapping[str, Tensor], learning_rate: float, number: float
    ) -> None:
        codes = {name: state[f"{name}_codes"].view(-1) for name, _ in _AVERAGES}
        for begin in range(0, len(weights), CHUNK_8BIT):
            part, blocks = (
                slice(begin, begin + CHUNK_8BIT),
                slice(begin // BLOCK_8BIT, (begin + CHUNK_8BIT) // BLOCK_8BIT),
            )
            mean, square = (
                decoded(codes[name][part], state[f"{name}_scales"][blocks], signed=signed) for name, signed in _AVERAGES
            )
            self._average(gradients[part], mean, square)
            self._move(weights[part], mean, square, learning_rate, number)
            for (name, signed), value in zip(_AVERAGES, (mean, square), strict=True):
                encode(value, codes[name][part], state[f"{name}_scales"][blocks], signed=signed)

    def _update_share(  # noqa: PLR0917  # what AdamW's update is made of
        self,
        weights: Float[Tensor, "rows columns"],
        gradients: Float[Tensor, "rows columns"],
        state: Mapping[str, Tensor],
        learning_rate: float,
        number: float,
        shares: Shares,
    ) -> None:
        """Every average is made twice: for the scales, which others' parts of a block decide too, and to use it."""
        codes = [mine(state[f"{name}_codes"]) for name, _ in _AVERAGES]
        scales = torch.stack([gathered(state[f"{name}_scales"]) for name, _ in _AVERAGES])

        def averages(rows: slice, blocks: Tensor) -> tuple[Tensor, Tensor]:
            mean, square = (
                _looked_up(own[rows], signed=signed).mul_(scale[blocks])
                for own, scale, (_, signed) in zip(codes, scales, _AVERAGES, strict=True)
            )
            self._average(gradients[rows], mean, square)
            return mean, square

        largest = torch.zeros_like(scales)
        for rows, blocks in _blocks_of_rows(weights, shares):
            for found, value in zip(largest, averages(rows, blocks), strict=True):
                found.scatter_reduce_(0, blocks.view(-1), value.abs_().view(-1), "amax")
        shares.largest(largest)
        for rows, blocks in _blocks_of_rows(weights, shares):
            mean, square = averages(rows, blocks)
            self._move(weights[rows], mean, square, learning_rate, number)
            for own, scale, value, (_, signed) in zip(codes, largest, (mean, square), _AVERAGES, strict=True):
                _nearest(value.div_(_divisor(scale)[blocks]), own[rows], signed=signed)
        for (name, _), scale in zip(_AVERAGES, largest, strict=True):
            shares.keep(state[f"{name}_scales"], scale)

    def _average(self, gradient: Tensor, mean: Tensor, square: Tensor) -> None:
        mean.lerp_(gradient, 1 - self.beta1)
        square.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)

    def _move(self, parameter: Tensor, mean: Tensor, square: Tensor, learning_rate: float, number: float) -> None:
        denominator = square.sqrt().div_(math.sqrt(1 - self.beta2**number)).add_(self.epsilon)
        parameter.addcdiv_(mean, denominator, value=-learning_rate / (1 - self.beta1**number))


def _by_block(values: Tensor, scales: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Views [blocks, elements] with their scales [blocks, 1]: the whole blocks, then what is left of the last."""
    whole = len(values) // BLOCK_8BIT
    if whole:
        yield values[: whole * BLOCK_8BIT].view(whole, BLOCK_8BIT), scales[:whole].view(whole, 1)
    if len(values) % BLOCK_8BIT:
        yield values[whole * BLOCK_8BIT :].view(1, -1), scales[whole:].view(1, 1)


def _divisor(scales: Tensor) -> Tensor:
    return scales.clamp(min=torch.finfo(torch.float32).tiny)


def _nearest(values: Tensor, codes: Tensor, *, signed: bool) -> None:
    """Write the code of the nearest value of the table; of a square the least above 0, unless it is 0.

    A square that was rounded to 0 beside a mean that was not would make an update of mean/ε.
    """
    least, *others = table(signed=signed)
    known = torch.tensor([least if signed else -others[0], *others], device=values.device)  # edges are midpoints
    codes.copy_(torch.bucketize(values, (known[1:] + known[:-1]) / 2, out_int32=True))


def _looked_up(codes: Tensor, *, signed: bool) -> Tensor:
    known = torch.tensor(table(signed=signed), device=codes.device)
    return torch.index_select(known, 0, codes.view(-1).int()).view(codes.shape)


def _blocks_of_rows(
    own: Float[Tensor, "rows columns"], shares: Shares
) -> Iterator[tuple[slice, Int64[Tensor, "some columns"]]]:
    """Some rows of this rank's part at a time, with the number of the block that each element of them belongs to."""
    first, *rest = shares.offset
    width = math.prod(shares.shape[1:])
    own_rows, columns = own.shape[0], own[:1].numel()
    columns_from = rest[0] if rest else 0
    across = torch.arange(columns_from, columns_from + columns, device=own.device)
    step = max(1, _CHUNK_OF_SHARE // max(1, columns))
    for begin in range(0, own_rows, step):
        rows = torch.arange(first + begin, first + min(begin + step, own_rows), device=own.device)
        places = rows.unsqueeze(1) * width + across
        yield slice(begin, begin + step), (places // BLOCK_8BIT).view(len(rows), *own.shape[1:])
