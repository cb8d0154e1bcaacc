"""Seconds of one kernel on an accelerator: a roofline whose roofs depend on shape and size.

A matrix product is cut into tiles, tiles run in waves over the chip's multiprocessors, and a wave that is not full
takes as long as a full one (NVIDIA, Matrix Multiplication Background User's Guide, DU-09798-001, "Dimension
quantization effects"). Small results are cut along k too (split-K), and what they add up is traffic. A kernel takes a
while to start, however little it moves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from torchledger.ledger import CONTRACTIONS, Amount, Line

#: Tiles that libraries have kernels for, with the share of the rate that each reaches: a smaller tile reads its
#: operands more often (the guide's table of tile sizes).
_TILES: tuple[tuple[int, int, float], ...] = (
    (256, 128, 1.0),
    (128, 256, 1.0),
    (128, 128, 0.94),
    (128, 64, 0.8),
    (64, 128, 0.8),
    (64, 64, 0.65),
)
_SPLITS = (1, 2, 4, 8)
#: Share of the rate that is left when the rows of an operand are aligned to so many elements only. Measured: an MLP of
#: width 10922 (2·5461) on an H100 runs at 272.7 TFLOP/s where 10944 (64·171) runs at 398.4 (ML Engineering, CC BY-SA
#: 4.0, training/performance); 64 is where the guide says that an A100 has no loss; between them straight in the
#: logarithm.
_ALIGNED, UNALIGNED_SHARE = 64, 272.7 / 398.4
#: Heads whose attention kernels are slower, and those that the rates are of.
_SMALL_HEAD, _LARGE_HEAD = 64, 128
#: Steps along k that a tile's prologue and epilogue take as long as.
_RAMP_K = 96


class Chipset(NamedTuple):
    """What the seconds of a kernel depend on, plain numbers so that they can be remembered by.

    Attributes:
        flops_per_s: by number format, what a large matrix product sustains.
        attention_flops_per_s: forward and backward, what a fused attention kernel sustains on long sequences, of the
            two and the five products that it runs.
        attention_small_heads: share of these rates that is left with heads of 64 and less.
        attention_ramp: keys at which it reaches half of that.
        bytes_per_s: what a large kernel that only moves bytes sustains.
        num_multiprocessors: units that tiles are spread over.
        unaligned_share: share of a product's rate that is left when its rows are aligned to two elements only.
        kernel_s: seconds between the start of a kernel and its first full-rate moment, the gap before it included.
    """

    flops_per_s: tuple[tuple[str, float], ...]
    attention_flops_per_s: tuple[float, float]
    attention_small_heads: tuple[float, float]
    attention_ramp: float
    bytes_per_s: float
    num_multiprocessors: int
    kernel_s: float
    unaligned_share: float = UNALIGNED_SHARE

    def rate(self, number_format: str) -> float | None:
        """FLOP/s of a large product in this format; nothing where the chip's rate is unknown."""
        return next((rate for name, rate in self.flops_per_s if name == number_format), None)


def alignment_share(*sizes: int, least: float = UNALIGNED_SHARE) -> float:
    """Share of the rate for operands whose rows have these lengths in elements.

    >>> alignment_share(4096, 10944), round(alignment_share(4096, 10922), 3)
    (1.0, 0.684)
    """
    aligned = min(_ALIGNED, *(size & -size for size in sizes))
    return 1 - (1 - least) * min(1.0, math.log2(_ALIGNED / aligned) / math.log2(_ALIGNED / 2))


@cache
def matmul_s(
    b: int, m: int, n: int, k: int, *, flops_per_s: float, num_multiprocessors: int, bytes_per_s: float
) -> float:
    """Seconds of b products [m, k] @ [k, n], the fastest tile taken; without the start of the kernel.

    A product that fills every wave with whole tiles runs at the full rate but for the ramp along k:

    >>> full = 2 * 4096**3 / 1e14
    >>> chip = {"flops_per_s": 1e14, "num_multiprocessors": 128, "bytes_per_s": 1e12}
    >>> round(matmul_s(1, 4096, 4096, 4096, **chip) / full, 3)  # 512 tiles of 256·128, 4 waves of 128
    1.023
    >>> matmul_s(1, 4097, 4096, 4096, **chip) > 1.1 * full
    True
    """
    moved = 2 * b * (m * k + k * n + m * n)
    best = math.inf
    for rows, columns, share in _TILES:
        tiles = b * -(-m // rows) * -(-n // columns)
        for splits in _SPLITS:
            if splits > 1 and (tiles >= num_multiprocessors or k < 512 * splits):
                break
            waves = -(-tiles * splits // num_multiprocessors)
            depth = -(-k // splits) + _RAMP_K
            seconds = waves * 2 * rows * columns * depth * num_multiprocessors / (flops_per_s * share)
            if splits > 1:  # every split writes its part in FP32, and one more pass adds them
                seconds += 4 * b * m * n * (splits + 1) / bytes_per_s
            best = min(best, seconds)
    return max(best, moved / bytes_per_s)


def line_s(line: Line, chips: Chipset) -> float | None:
    """Seconds of one time of a line on the device; nothing where its work or the rate of its format is unknown.

    What moves no bytes is part of another line's kernel and takes none. A fused attention kernel runs the pairs that
    the mask lets through; products over written scores are matrix products over all pairs, whatever the mask.
    """
    work = line.work
    moved = work.bytes_moved
    if line.kind == "unknown" or moved is None:
        return None
    memory_s = float(moved / chips.bytes_per_s)
    if line.kind not in CONTRACTIONS:
        return memory_s + chips.kernel_s if moved else 0.0
    sizes = dict(line.shape)
    if "keys" in sizes and work.flops_exact is not None:
        backward = line.phase == "backward"
        flops = float(work.flops_exact) * (_products_again(sizes) if backward else 1.0)
        share = float(sizes["keys"] / (sizes["keys"] + chips.attention_ramp))
        if sizes.get("head_size", _LARGE_HEAD) <= _SMALL_HEAD:
            share *= chips.attention_small_heads[backward]
        return max(flops / (chips.attention_flops_per_s[backward] * share), memory_s) + chips.kernel_s
    rate = chips.rate(line.number_format)
    if rate is None or work.flops_executed is None:
        return None
    if not {"m", "n", "k"} <= sizes.keys():
        return max(float(work.flops_executed) / rate, memory_s) + chips.kernel_s
    b, m, n, k = (math.ceil(sizes.get(name, 1)) for name in "bmnk")
    found = product_s(b, m, n, k, rate=rate, chips=chips, is_weight_gradient=line.gradient_of == "weight")
    return max(found, memory_s) + chips.kernel_s


def product_s(b: int, m: int, n: int, k: int, *, rate: float, chips: Chipset, is_weight_gradient: bool) -> float:
    """Seconds of b products [m, k] @ [k, n] on the chip, without the start of the kernel."""
    # tokens are the rows of a forward product and the depth of a weight gradient: their number aligns nothing
    aligned = alignment_share(*((m, n) if is_weight_gradient else (n, k)), least=chips.unaligned_share)
    return matmul_s(
        b,
        m,
        n,
        k,
        flops_per_s=rate * aligned,
        num_multiprocessors=chips.num_multiprocessors,
        bytes_per_s=chips.bytes_per_s,
    )


def _products_again(sizes: Mapping[str, Amount]) -> float:
    """What a fused backward kernel multiplies over the model's four products: the scores once more.

    Its published rates count five (FlashAttention-2, arXiv:2307.08691, section 4.1: 2.5 times the forward pass).

    >>> _products_again({"head_size": 128, "value_head_size": 128})
    1.25
    """
    scores, values = sizes["head_size"], sizes["value_head_size"]
    return float((3 * scores + 2 * values) / (2 * (scores + values)))
