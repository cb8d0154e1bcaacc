"""An advised recipe in mixed precision, and what one step in it differs from one in FP32."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from torchledger.auditor.precision_census import Census
from torchledger.auditor.precision_scale import LossScale
from torchledger.auditor.precision_seen import Seen
from torchledger.auditor.precision_step import Step
from torchledger.auditor.subject import Precision

__all__ = ["NOISY", "Check", "Recipe", "candidates", "checked", "kept_in_fp32"]

#: Rounding a layer's output adds this share of its variation, and the layer should stay in FP32.
NOISY = 0.1
#: A recipe holds when the loss is this near to FP32's, and gradients point the same way by this cosine.
LOSS_WITHIN = 0.02
ALIKE = 0.95
#: And updates point roughly the same way.
ROUGHLY = 0.5
_MARGIN = 2  # powers of two below the largest number, so that a later step too fits
_SAVED = 0.5  # of a layer's gradients that may be lost at the best loss scale


@dataclass(frozen=True, slots=True)
class Recipe:
    """A way to train in mixed precision; optimizer state is in what weights are stored in.

    Attributes:
        precision: what the forward pass is autocast to.
        kept: module -> why it runs in FP32 all the same.
        loss_scale: what the loss is multiplied with.
        stored: what weights are stored in.
    """

    precision: Precision
    kept: Mapping[str, str]
    loss_scale: float = 1.0
    stored: str = "FP32"

    def told(self) -> str:
        """The recipe in words."""
        if self.precision == "fp32":
            return "FP32 throughout" if self.stored == "FP32" else f"weights in {self.stored}, no autocast"
        scale = f", loss scale 2^{round(math.log2(self.loss_scale))}" if self.loss_scale != 1 else ""
        kept = f", {len(self.kept)} module{'s' if len(self.kept) > 1 else ''} in FP32" if self.kept else ""
        return f"autocast to {self.precision.upper()}{scale}{kept}; weights in {self.stored}"


@dataclass(frozen=True, slots=True)
class Check:
    """A step against the one in FP32.

    Attributes:
        recipe: how it ran.
        loss: of this step.
        loss_difference: relative.
        gradient_cosine, gradient_difference: of all gradients as one vector; the difference is relative to FP32's norm.
        update_cosine, update_difference: of all updates; nothing where there is no optimizer.
        holds: whether it may be trained so.
    """

    recipe: Recipe
    loss: float
    loss_difference: float
    gradient_cosine: float | None
    gradient_difference: float | None
    update_cosine: float | None
    update_difference: float | None

    @property
    def is_near(self) -> bool:
        """Whether loss and gradients are as good as those in FP32."""
        is_near = math.isfinite(self.loss) and self.loss_difference <= LOSS_WITHIN
        return is_near and (self.gradient_cosine is None or self.gradient_cosine >= ALIKE)

    @property
    def holds(self) -> bool:
        """Whether it may be trained so: updates too point where those in FP32 do.

        They need not do so as nearly: AdamW's first ones are the signs of gradients, and those near 0 have any sign.
        """
        return self.is_near and (self.update_cosine is None or self.update_cosine >= ROUGHLY)


def checked(recipe: Recipe, step: Step, reference: Step) -> Check:
    """What a step in a recipe differs from the one in FP32."""
    difference = abs(step.loss - reference.loss) / max(abs(reference.loss), torch.finfo(torch.float32).tiny)
    gradient = _compared(step.gradients, reference.gradients)
    update = _compared(step.updates, reference.updates)
    return Check(recipe, step.loss, difference, *gradient, *update)


@torch.no_grad()
def _compared(low: Mapping[str, Tensor], wide: Mapping[str, Tensor]) -> tuple[float | None, float | None]:
    """Cosine, and norm of the difference over the norm in FP32; nothing where that is 0."""
    product = norm = other = apart = 0.0
    for name, reference in wide.items():
        value = low.get(name)
        exact = reference.double()  # squares of small gradients are 0 in FP32
        other_exact = torch.zeros_like(exact) if value is None else value.double()
        product += torch.sum(other_exact * exact).item()
        norm += exact.square().sum().item()
        other += other_exact.square().sum().item()
        apart += (other_exact - exact).square().sum().item()
    if not norm:
        return None, None
    return (product / math.sqrt(norm * other) if other else 0.0), math.sqrt(apart / norm)


def kept_in_fp32(
    seen: Seen, precision: Precision, gradients: Mapping[str, Census], exponent: int | None
) -> dict[str, str]:
    """Modules that should stay in FP32 in a precision, each with the reason.

    Args:
        seen: of the step in FP32.
        precision: of the others.
        gradients: module -> census of the gradients of its outputs.
        exponent: of the loss scale in FP16.
    """
    if precision == "fp32":
        return {}
    kind = precision.upper()
    found: dict[str, str] = {}
    for place, noise in seen.noise.items():
        share = noise.share(kind)
        if share is not None and share > NOISY:
            found[place] = f"rounding its output to {kind} adds {share:.0%} of what the output varies by"
    if precision == "fp16":
        found.update(_beyond_fp16(seen, gradients, exponent))
    return found


def _beyond_fp16(seen: Seen, gradients: Mapping[str, Census], exponent: int | None) -> Iterator[tuple[str, str]]:
    for place, census in seen.activations.items():
        if census.overflows_at("FP16", _MARGIN):
            yield place, f"its output reaches {census.largest:.3g}, FP16 ends at 65,504"
    for place, logits in seen.operations.logits.items():
        if logits.census.overflows_at("FP16", _MARGIN):
            yield place, f"its attention logits reach {logits.census.largest:.3g}, FP16 ends at 65,504"
    for place, census in gradients.items():
        share = census.lost("FP16", shift=exponent or 0).share("to_zero")
        if share > _SAVED:
            yield place, f"{share:.0%} of its output's gradients are 0 in FP16 even at the best loss scale"


def candidates(own: Precision, kept: Callable[[Precision], Mapping[str, str]], scale: LossScale) -> Iterable[Recipe]:
    """Recipes to try, the best first: the run's own 16-bit format, or BF16; FP32 where nothing else holds."""
    kinds: tuple[Precision, ...] = ("fp16", "bf16", "fp32") if own == "fp16" else ("bf16", "fp32")
    for kind in kinds:
        # A quarter of the largest scale: gradients grow and shrink from step to step.
        fits = 2.0 ** (scale.exponent - _MARGIN) if kind == "fp16" and scale.exponent is not None else 1.0
        yield Recipe(kind, kept(kind), fits)
