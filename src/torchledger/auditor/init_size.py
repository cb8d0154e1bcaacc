"""How large a tensor is: mean, spread and root mean square, in a precision that no value of it leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Size:
    """How large a tensor's values are.

    Attributes:
        rms: root of the mean square.
        mean: of the values.
        num_bad: infinite values and NaN; `rms` and `mean` are then NaN.
    """

    rms: float
    mean: float
    num_bad: int = 0

    @property
    def std(self) -> float:
        """Standard deviation about the mean."""
        return math.sqrt(max(self.rms**2 - self.mean**2, 0.0)) if math.isfinite(self.rms) else math.nan

    @property
    def variance(self) -> float:
        """Square of the standard deviation."""
        return self.std**2


def size_of(tensor: Tensor) -> Size:
    """Look at a float tensor, of a sparse one at all of it; a square that leaves FP32 is taken in FP64."""
    x = tensor.detach().to_dense()
    if not x.numel():
        return Size(0.0, 0.0)
    root = math.sqrt(x.numel())
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    rms = float(torch.linalg.vector_norm(x, dtype=wide)) / root
    if not 1e-15 < rms < 1e15:
        x = x.double()
        rms = float(torch.linalg.vector_norm(x)) / root
        if not math.isfinite(rms):
            return Size(math.nan, math.nan, int((~torch.isfinite(x)).sum()))
    return Size(rms, float(x.mean(dtype=torch.float64 if x.dtype == torch.float64 else torch.float32)))
