"""Which attention kernel is faster here, the one that writes the scores to memory or the fused one: a short probe."""

from dataclasses import dataclass
from typing import Literal

import torch

from torchledger.formula.precision import FORMATS
from torchledger.spec import ModelSpec, Recipe
from torchledger.trainer.attention import Core
from torchledger.trainer.position import causal_mask
from torchledger.trainer.precision import best_time

__all__ = ["KernelChoice", "choose_kernel"]

Kernel = Literal["math", "fused"]

PROBE_S = 0.1  # for each kernel
PROBE_BYTES = 2**28  # of scores at most; the time per sequence is the same for fewer sequences


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """What was chosen, and on what grounds.

    Attributes:
        kernel: the kernel.
        reason: in words, for the assumptions of every answer that rests on it.
        math_s: seconds of one layer's attention, forward and backward, with scores in memory; `None` if not probed.
        fused_s: the same with the fused kernel.
    """

    kernel: Kernel
    reason: str
    math_s: float | None = None
    fused_s: float | None = None


def choose_kernel(spec: ModelSpec, recipe: Recipe, device: torch.device) -> KernelChoice:
    """The kernel for the model's heads at the recipe's sequence length and precision.

    On CPUs neither is always faster: torch's fused kernel does not use the bfloat16 matrix units as well as a plain
    matmul does, but it moves far fewer bytes, which wins for long sequences and in float32. So both are timed, on the
    sequences of one micro-batch. On a GPU the fused one is taken without a probe.
    """
    if spec.attention.logit_soft_cap is not None:
        return KernelChoice("math", "attention math: a soft-cap on the scores needs them in memory")
    itemsize = 2 if FORMATS[recipe.precision].value == "bf16" else 4
    sequence_bytes = spec.attention.num_heads * recipe.sequence_length**2 * itemsize
    rows = min(recipe.micro_batch_size, PROBE_BYTES // sequence_bytes)
    if rows == 0:
        return KernelChoice("fused", f"attention fused: a sequence's scores would take {sequence_bytes:,} bytes")
    if device.type != "cpu":
        return KernelChoice("fused", f"attention fused: taken without a probe on {device.type}")
    math_s, fused_s = (_probe(kernel, spec, recipe, device, rows) for kernel in ("math", "fused"))
    chosen: Kernel = "math" if math_s < fused_s else "fused"
    times = f"{math_s:.2g} s with scores in memory and {fused_s:.2g} s fused here"
    reason = f"attention {chosen}: a layer's takes a core {times}"
    return KernelChoice(chosen, reason, math_s, fused_s)


def _probe(kernel: Kernel, spec: ModelSpec, recipe: Recipe, device: torch.device, rows: int) -> float:
    """Seconds of one layer's attention between its projections, forward and backward."""
    dtype = torch.bfloat16 if FORMATS[recipe.precision].value == "bf16" else torch.float32
    length, size, value_size = recipe.sequence_length, spec.head_size, spec.value_head_size
    shapes = (
        (rows, length, spec.attention.num_heads, size),
        (rows, length, spec.num_key_value_heads, size),
        (rows, length, spec.num_key_value_heads, value_size),
    )
    query, key, value = (torch.zeros(shape, dtype=dtype, device=device, requires_grad=True) for shape in shapes)
    core = Core(spec, kernel)
    documents = torch.zeros(rows, length, dtype=torch.int64, device=device) if recipe.document_mask else None
    has_mask = kernel == "math" or documents is not None
    mask = causal_mask(length, 0, None, query, dtype, documents) if has_mask else None

    def run() -> None:
        out = core(query, key, value, mask)
        out.backward(torch.zeros_like(out))

    return best_time(run, PROBE_S)
