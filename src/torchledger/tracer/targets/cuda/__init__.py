"""What CUDA would do, over fake CPU tensors: one file per subject, its facts in data files beside it."""

from torchledger.tracer.targets.cuda.running import AfterCall, running_on_cuda

__all__ = ["AfterCall", "running_on_cuda"]
