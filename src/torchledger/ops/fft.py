"""Fast Fourier transforms.

Cooley and Tukey, Mathematics of Computation 19 (1965) 297-301: N/2·log₂ N butterflies of one complex multiply and two
complex adds, 10 FLOPs each, so 5·N·log₂ N. It is the figure by which FFTW and its peers state rates
(http://www.fftw.org/speed/method.html), whatever N's factors: half of it where one side is real. What a library runs
for an N is its own affair.
"""

from __future__ import annotations

from math import log2

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule


@rule
def fourier_transform(
    batch: int, points: int, *, real: bool = False, scaled: bool = False, element_bytes: Amount = 8
) -> tuple[Piece, ...]:
    """`batch` transforms of `points` points; of several dimensions, `points` is the product of their sizes.

    Args:
        batch: how many.
        points: N.
        real: whether input or result are real numbers.
        scaled: whether the result is multiplied by 1/N or 1/√N: two multiplies a complex number.
        element_bytes: bytes of a complex number.

    >>> fourier_transform(3, 8)[0].work.flops_full, fourier_transform(3, 8, real=True)[0].work.flops_full  # 3·5·8·3
    (360, 180)
    """
    flops = 5 * batch * points * log2(points) if points > 0 else 0.0
    flops = flops / 2 if real else flops
    whole = round(flops) + ((1 if real else 2) * batch * points if scaled else 0)
    moved = element_bytes * batch * points
    work = Work.of_flops(whole, bytes_read=moved, bytes_written=moved)
    return (Piece("fft", "fft", work, (("batch", batch), ("points", points))),)
