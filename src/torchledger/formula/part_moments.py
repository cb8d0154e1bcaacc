"""The moments of a step that can be its peak, part by part, on any kernels: what is kept, made again, and held beside.

A part's own parameter gradients are taken to be there during all of its backward pass, which makes a moment an upper
bound of what its tensors hold; the parts' temporaries are a sweep over their operations (`sweep`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torchledger.formula.moments import Moment
from torchledger.formula.optimizer import temporary_bytes, trained
from torchledger.formula.parts import Part
from torchledger.formula.precision import FORMATS
from torchledger.formula.value import ELEMENT_BYTES
from torchledger.ledger import Amount
from torchledger.spec import Recipe


def part_moments(
    found: Sequence[Part], recipe: Recipe, standing: Mapping[str, Amount], gradient_bytes: Amount
) -> tuple[Moment, ...]:
    """The fullest forward and backward pass of each part, and the optimizer's step.

    Args:
        found: the model's parts.
        recipe: how it is trained.
        standing: bytes by part of what is alive throughout: parameters, master weights, optimizer state, inputs.
        gradient_bytes: bytes of all gradients.
    """
    fullest: dict[str, Moment] = {}
    for moment in _passes(found, recipe, standing, gradient_bytes):
        before = fullest.get(moment.name)
        if before is None or moment.total_bytes > before.total_bytes:
            fullest[moment.name] = moment
    each_one = [replace(each, times=each.times * part.times) for part in found for each in part.parameters]
    held = temporary_bytes(each_one, recipe.optimizer, recipe.precision)
    step = {"gradients": gradient_bytes, "temporaries: optimizer": held}
    return (*fullest.values(), Moment("optimizer step", {**standing, **step}))


def in_order(found: Sequence[Part]) -> list[Part]:
    """Every part as often as the model has it, in the order in which it runs."""
    layers = [(run.first, run.count, part) for part in found for run in part.runs]
    layers.sort(key=lambda each: each[0])
    return [found[0], *(part for _, count, part in layers for _ in range(count)), found[-1]]


def _passes(
    found: Sequence[Part], recipe: Recipe, standing: Mapping[str, Amount], gradient_bytes: Amount
) -> Iterator[Moment]:
    sequence = in_order(found)
    accumulates = recipe.accumulation_steps != 1
    kept: Amount = 0
    for part in sequence:
        kept = kept + part.kept_bytes
        parts = {
            "gradients": gradient_bytes if accumulates else 0,  # those of the earlier micro-batches
            "activations": kept,
            "temporaries": part.forward_temporary_bytes,
        }
        yield Moment(f"forward of the {part.name}", {**standing, **parts})
    gradients: Amount = 0
    for part in reversed(sequence):
        gradients = gradients + _gradient_bytes(part, recipe)
        parts = {
            "gradients": gradient_bytes if accumulates else gradients,
            "activations": kept,
            "recomputed activations": sum(each.total_bytes for each in part.recomputed),
            "temporaries": part.backward_temporary_bytes,
        }
        yield Moment(f"backward of the {part.name}", {**standing, **parts})
        kept = kept - part.kept_bytes


def _gradient_bytes(part: Part, recipe: Recipe) -> Amount:
    size = ELEMENT_BYTES[FORMATS[recipe.precision].gradient]
    return size * sum(each.total for each in trained(part.parameters))
