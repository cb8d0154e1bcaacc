"""What a device would do that is not there: one file per target, one way in."""

from torchledger.tracer.targets.cuda import AfterCall
from torchledger.tracer.targets.target import CPU, Target, target

__all__ = ["CPU", "AfterCall", "Target", "target"]
