"""In which number format matmuls run: as asked, or as a short probe on this machine finds faster."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import torch

from torchledger.meter import set_threads
from torchledger.trainer.linear import Linear

__all__ = [
    "BUILT",
    "PrecisionChoice",
    "PrecisionError",
    "autocast",
    "best_time",
    "choose_precision",
    "tensor_float_32",
]

Precision = Literal["fp32", "tf32", "bf16", "fp16", "bf16-master", "bf16-moments", "bf16-pure", "fp8"]
#: Every precision that this trainer runs, somewhere.
BUILT: tuple[str, ...] = get_args(Precision)

PROBE_S = 0.1  # for each format
PROBE_TOKENS = 4096  # rows at most: more change the time per row no further, and would take memory
_AMPERE = (8, 0)  # compute capability of the first GPUs with TF32 (NVIDIA A100 whitepaper, 2020)
_ADA = (8, 9)  # of the first with FP8 (NVIDIA Ada GPU architecture whitepaper, 2022), which torch._scaled_mm asks for
FASTER = 1.05  # a format with fewer bits has to pay for them


class PrecisionError(ValueError):
    """A precision that cannot be had on this device; the message says why, and what can."""


@dataclass(frozen=True, slots=True)
class PrecisionChoice:
    """What was chosen, and on what grounds.

    Attributes:
        precision: the format of the matmuls.
        reason: in words, for the assumptions of every answer that rests on it.
        fp32_s, bf16_s: seconds of the probe's matmuls, `None` where nothing was probed.
    """

    precision: Precision
    reason: str
    fp32_s: float | None = None
    bf16_s: float | None = None


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Around a forward pass: `bf16` and `fp16` leave parameters in FP32, and torch casts at each matmul.

    Where parameters are stored in 16 bit there is nothing to cast.

    Raises:
        PrecisionError: a precision that this trainer does not run.
    """
    if precision not in BUILT:
        raise PrecisionError(_unbuilt(precision))
    if precision == "tf32":
        return tensor_float_32()
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)


@contextmanager
def tensor_float_32() -> Iterator[None]:
    """Matmuls of FP32 operands run in TF32 in here: 10 bits of their 23 behind the point, sums in FP32.

    The backward pass too has to be in here: it is a switch of the process, no property of a tensor.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def choose_precision(asked: str, device: torch.device, *, tokens: int, hidden: int, inner: int) -> PrecisionChoice:
    """The precision to train in.

    FP8 is taken where it is asked for and nowhere else: it changes what is computed, and no probe of speed sees that.

    `auto` on a CPU times one linear layer, forward and backward, in both formats: without bfloat16 units (AVX512_BF16,
    AMX) bfloat16 is emulated there and several times slower. On a GPU with bfloat16 units it is taken without a probe.

    Args:
        asked: `auto`, or a format.
        device: where the model trains.
        tokens: rows of the layer that is timed, the tokens of a micro-batch.
        hidden: its inputs; those of the model's MLP are the ones that matter.
        inner: its outputs.

    Raises:
        PrecisionError: fp16 on a CPU, where it is many times slower than fp32 (2048³ matmul, two Zen 4 cores: 3 against
            195 GFLOP/s); tf32 and fp8 on a GPU without units for it; and what only the planner knows.
    """
    _require_units(asked, device)
    if asked in BUILT:
        return PrecisionChoice(cast("Precision", asked), f"precision {asked}, as asked{_told(asked, device)}")
    if asked != "auto":
        raise PrecisionError(_unbuilt(asked))
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return PrecisionChoice("bf16", "precision bf16: the GPU has units for it")
        return PrecisionChoice("fp32", "precision fp32: the GPU has no bf16 units")
    if device.type != "cpu":
        return PrecisionChoice("fp32", f"precision fp32: nothing is known of bf16 on {device.type}")
    rows = min(tokens, PROBE_TOKENS)
    fp32_s, bf16_s = (_probe(p, device, rows, hidden, inner) for p in ("fp32", "bf16"))
    faster = bf16_s * FASTER < fp32_s
    chosen: Precision = "bf16" if faster else "fp32"
    reason = f"precision {chosen}: a linear layer takes a core {bf16_s:.2g} s in bf16 here and {fp32_s:.2g} s in fp32"
    return PrecisionChoice(chosen, reason, fp32_s, bf16_s)


def _require_units(asked: str, device: torch.device) -> None:
    """Refuse a format that nothing on the device computes in, or only so slowly that nobody wants it.

    FP8 on a CPU is let through: torch computes its products there in FP32, which is no faster but the same arithmetic,
    so that what it does to a model can be seen without a GPU.
    """
    if asked == "fp16":
        if device.type == "cpu":
            raise PrecisionError(
                "fp16 cannot be trained on a CPU: torch's fp16 kernels there are many times slower than its fp32 ones; "
                "use bf16 or fp32"
            )
        if device.type != "cuda":
            raise PrecisionError(f"fp16 needs loss scaling, which torch does on CUDA, not on {device.type}; use fp32")
    if asked == "tf32" and (device.type != "cuda" or torch.cuda.get_device_capability(device) < _AMPERE):
        raise PrecisionError(
            f"tf32 is a mode of the matrix units of CUDA GPUs from Ampere on; this {device.type} device has none: "
            "use fp32 or bf16"
        )
    if asked == "fp8" and device.type != "cpu":
        if device.type != "cuda" or torch.version.hip is not None:
            kind = device.type if torch.version.hip is None else "ROCm"
            raise PrecisionError(f"fp8 is built on torch's products for CUDA GPUs; {kind} has none of them: use bf16")
        if (found := torch.cuda.get_device_capability(device)) < _ADA:
            raise PrecisionError(
                f"fp8 needs matrix units that CUDA GPUs have from compute capability {_ADA[0]}.{_ADA[1]} on (Ada, "
                f"Hopper, Blackwell); this one has {found[0]}.{found[1]}: use bf16 or bf16-master"
            )


def _told(asked: str, device: torch.device) -> str:
    """What should be known of a format that is taken as asked."""
    if asked == "fp8" and device.type == "cpu":
        return ": a CPU has no FP8 units, so its products run in FP32 on the rounded values, slower than bf16 or fp32"
    return ""


def _unbuilt(precision: str) -> str:
    built = ", ".join(BUILT)
    return f"precision {precision} is known to planner and formulas, this trainer does not run it; it runs {built}"


def _probe(precision: Precision, device: torch.device, tokens: int, hidden: int, inner: int) -> float:
    """Seconds of one linear layer, forward and backward: the best of those that fit in the time."""
    layer = Linear(hidden, inner, bias=False, device=device)
    torch.nn.init.zeros_(layer.weight)
    x = torch.zeros(tokens, hidden, device=device, requires_grad=True)

    def run() -> None:
        with autocast(device, precision):
            y = layer(x)
        y.backward(torch.zeros_like(y))

    return best_time(run, PROBE_S)


def best_time(run: Callable[[], object], budget_s: float) -> float:
    """Least CPU seconds of `run` on one thread within a budget, after one run to warm up and at least two to measure.

    A choice must not hang on what else the machine does: two threads that wait for each other slow down several times
    when another process wants their cores, and a choice that flips gives other bits. CPU seconds of one thread stay
    within about a tenth under load.
    """
    threads = torch.get_num_threads()
    set_threads(1)
    try:
        run()
        end, best, count = time.process_time() + budget_s, float("inf"), 0
        while count < 2 or time.process_time() < end:
            begin = time.process_time()
            run()
            best, count = min(best, time.process_time() - begin), count + 1
    finally:
        set_threads(threads)
    return best
