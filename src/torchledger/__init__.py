"""torchledger: the books of a training run."""

from __future__ import annotations

__version__ = "0.1.0"
