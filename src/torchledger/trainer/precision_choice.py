"""In which number format a run's matmuls run: as asked, or as a short probe of one layer finds faster here."""

from dataclasses import dataclass, replace
from typing import cast

import torch

from torchledger.formula import count, num_parameters
from torchledger.meter import facts
from torchledger.spec import ModelSpec, Recipe
from torchledger.trainer.kernel import KernelChoice, choose_kernel
from torchledger.trainer.precision import (
    BUILT,
    Precision,
    PrecisionError,
    best_times,
    require_units,
    unbuilt_words,
)
from torchledger.trainer.trial import Trial, one_layer

__all__ = ["PrecisionChoice", "choose_precision"]

PROBE_S = 0.2  # for each format
PROBE_TOKENS = 4096  # rows at most: more change the time per row no further, and would take memory
PROBE_FLOPS = 5e10  # of one run at most: half a second of a core that does 100 GFLOP/s
_COPIES = 4  # of a layer's parameters in FP32 while it is probed: themselves, gradients, and casts of both
FASTER = 1.05  # a format with fewer bits has to pay for them


@dataclass(frozen=True, slots=True)
class PrecisionChoice:
    """What was chosen, and on what grounds.

    Attributes:
        precision: the format of the matmuls.
        reason: in words, for the assumptions of every answer that rests on it.
        fp32_s, bf16_s: CPU seconds of the probe's layer, `None` where nothing was probed.
        kernel: the attention kernel that was found to be faster in this format, where that was asked too and probed.
    """

    precision: Precision
    reason: str
    fp32_s: float | None = None
    bf16_s: float | None = None
    kernel: KernelChoice | None = None


def choose_precision(
    asked: str, spec: ModelSpec, recipe: Recipe, device: torch.device, *, with_kernel: bool = False
) -> PrecisionChoice:
    """The precision to train in.

    FP8 is taken where it is asked for and nowhere else: it changes what is computed, and no probe of speed sees that.

    `auto` on a CPU times a layer of the model, forward and backward, attention included, in both formats. Neither its
    linear maps nor its attention decide alone: with bfloat16 units (AVX512_BF16, AMX) the maps are several times faster
    than in FP32 while torch's fused attention is many times slower; without units bfloat16 is emulated and slower in
    both. On a GPU with bfloat16 units it is taken without a probe.

    Args:
        asked: `auto`, or a format.
        spec: the model.
        recipe: how it is trained; its precision is not looked at, its kernel is the one of the layer that is timed.
        device: where the model trains.
        with_kernel: whether the kernel is open too: each format is then timed with its faster one.

    Raises:
        PrecisionError: a format that this device cannot train in, and what only the planner knows.
    """
    require_units(asked, device)
    if asked in BUILT:
        return PrecisionChoice(cast("Precision", asked), f"precision {asked}, as asked{_told(asked, device)}")
    if asked != "auto":
        raise PrecisionError(unbuilt_words(asked))
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return PrecisionChoice("bf16", "precision bf16: the GPU has units for it")
        return PrecisionChoice("fp32", "precision fp32: the GPU has no bf16 units")
    if device.type != "cpu":
        return PrecisionChoice("fp32", f"precision fp32: nothing is known of bf16 on {device.type}")
    needed, free = 4 * _COPIES * num_parameters(one_layer(spec)), facts(device).free_bytes
    if needed > free:
        why = f"not probed against bf16, since one layer would take {needed:,} bytes and {free:,} are free"
        return PrecisionChoice("fp32", f"precision fp32: {why}")
    return _probed(spec, recipe, device, with_kernel=with_kernel)


def _probed(spec: ModelSpec, recipe: Recipe, device: torch.device, *, with_kernel: bool) -> PrecisionChoice:
    formats: tuple[Precision, Precision] = ("fp32", "bf16")
    recipes = [replace(recipe, precision=name) for name in formats]
    kernels: list[KernelChoice | None] = [None, None]
    if with_kernel:
        kernels = [choose_kernel(spec, each, device) for each in recipes]
        recipes = [replace(r, attention=k.kernel) for r, k in zip(recipes, kernels, strict=True) if k is not None]
    short = _short(spec, recipe)
    fp32_s, bf16_s = _seconds(spec, [_as_short(each, short) for each in recipes], device)
    number = int(bf16_s * FASTER < fp32_s)
    of = (
        ""
        if short.sequence_length == recipe.sequence_length
        else f", on {short.sequence_length:,} of a sequence's {recipe.sequence_length:,} tokens"
    )
    in_fp32, in_bf16 = (f" with {each.attention} attention" if with_kernel else "" for each in recipes)
    reason = (
        f"precision {formats[number]}: a layer, forward and backward, takes a core {bf16_s:.2g} s in bf16{in_bf16} "
        f"and {fp32_s:.2g} s in fp32{in_fp32} here{of}"
    )
    return PrecisionChoice(formats[number], reason, fp32_s, bf16_s, kernels[number])


def _seconds(spec: ModelSpec, recipes: list[Recipe], device: torch.device) -> tuple[float, ...]:
    """CPU seconds of one layer by each of the recipes, in turn."""
    return best_times([Trial.of(spec, each, device).run for each in recipes], PROBE_S)


def _short(spec: ModelSpec, recipe: Recipe) -> Recipe:
    """The recipe with one micro-batch of as many whole sequences as a short probe can run, at least one.

    A sequence that is itself too long for that is halved until it is not.
    """
    layer, plain = one_layer(spec), replace(recipe, precision="fp32", trainable=(), load_balance=0.0)
    one = replace(plain, batch_size=1, accumulation_steps=1)
    while (flops := float(count(layer, one).flops)) > PROBE_FLOPS and one.sequence_length > 1:
        one = replace(one, sequence_length=one.sequence_length // 2)
    most = min(PROBE_TOKENS // one.sequence_length, int(PROBE_FLOPS / flops))
    return _as_short(recipe, replace(one, batch_size=max(1, min(recipe.micro_batch_size, most))))


def _as_short(recipe: Recipe, short: Recipe) -> Recipe:
    return replace(recipe, batch_size=short.batch_size, accumulation_steps=1, sequence_length=short.sequence_length)


def _told(asked: str, device: torch.device) -> str:
    """What should be known of a format that is taken as asked."""
    if asked == "fp8" and device.type == "cpu":
        return (
            ": a CPU has no FP8 units, and torch's FP8 products there go one number after the other, hundreds of times "
            "slower than those of fp32: for looking at a small model's numbers, not for training one"
        )
    return ""
