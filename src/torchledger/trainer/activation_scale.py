"""How large activations are before the first update, by depth; and which layer makes them too large or too small."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from torchledger.trainer.model import Transformer

__all__ = ["ActivationScale", "activation_scales", "unusual_scale"]

#: Times what a stream of branches of size 1 would have; branches of a sound initialisation are of size 1 at most.
LARGEST = 3.0
#: A loss is s²/2 above ln(vocabulary) where logits have standard deviation s; this is 2 % of ln(vocabulary).
LOSS_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class ActivationScale:
    """What a part of the model gives to the next.

    Attributes:
        name: `embedding` (with positions: what the first layer reads), `layers.0`, `layers.1`, ..., `head`.
        rms: root mean square of it over a few tokens; infinite or no number where the output has such.
    """

    name: str
    rms: float


@torch.no_grad()
def activation_scales(
    model: Transformer, tokens: Int[Tensor, "batch length"], documents: Int[Tensor, "batch length"] | None = None
) -> tuple[ActivationScale, ...]:
    """Root mean squares of embedding, layers and logits, in order of depth. Leaves no hook and draws no random number.

    Args:
        model: is in evaluation mode meanwhile.
        tokens: what it reads, no gradient is kept.
        documents: the number of each token's document, where they are kept apart.
    """
    seen: dict[str, Tensor] = {}
    was_training = model.training
    model.eval()
    try:
        with _watched(model, seen):
            model(tokens, None, documents) if documents is not None else model(tokens)
    finally:
        model.train(was_training)
    return tuple(ActivationScale(name, value.item()) for name, value in seen.items())


def unusual_scale(scales: tuple[ActivationScale, ...], model: Transformer) -> str:
    """The first part whose output is no number, too large or too small, in words; empty where all are sound.

    Two branches a layer, each of size 1 at most (what an initialisation that keeps sizes gives behind a norm), make the
    residual stream sqrt(e² + 2(l + 1)) behind layer l, for an embedding of e. More than three times that is a layer
    that enlarges what it reads. A stream below the square root of the norm's epsilon is one that the norm no longer
    brings to size 1. Logits of standard deviation s add s²/2 to the loss.
    """
    spec = model.spec
    first = scales[0].rms
    smallest = math.sqrt(spec.norm.epsilon)
    for depth, scale in enumerate(scales):
        if not math.isfinite(scale.rms):
            return f"{scale.name} gives no finite numbers before the first update: {_fault(scale.name, model)}"
        if scale.name == "head":
            largest = math.sqrt(2 * LOSS_TOLERANCE * math.log(spec.vocab_size))
            if scale.rms > largest:
                loss = scale.rms**2 / 2
                return (
                    f"head: logits have a size of {scale.rms:.3g} before the first update, so that the loss begins "
                    f"about {loss:.2g} above ln(vocabulary): {_fault('head', model)}"
                )
            continue
        bound = LARGEST * math.sqrt(first**2 + 2 * depth)
        if depth and scale.rms > bound:
            before = scales[depth - 1].rms
            return (
                f"{scale.name}: activations grow from {before:.3g} to {scale.rms:.3g} before the first update, where a "
                f"sound initialisation stays below {bound:.3g}: {_fault(scale.name, model)}"
            )
        if scale.rms < smallest:
            fault = _fault(scale.name, model, small=True)
            return (
                f"{scale.name}: activations have a size of {scale.rms:.3g} before the first update, below the norm's "
                f"sqrt(epsilon) = {smallest:.3g}, so that it cannot bring them to 1: {fault}"
            )
    return ""


def _fault(name: str, model: Transformer, *, small: bool = False) -> str:
    """The matrix of a part that is largest (or smallest) beside 1/sqrt(in), by name."""
    gains = {
        inner: (parameter.detach().float().square().mean().sqrt() * math.sqrt(parameter.shape[-1])).item()
        for inner, parameter in model.named_parameters()
        if parameter.ndim == 2 and _part_of(inner) == name
    }
    if not gains:
        return "its input is"
    choose = min if small else max
    worst = choose(gains, key=lambda inner: gains[inner] if math.isfinite(gains[inner]) else math.inf)
    return f"{worst} has {gains[worst]:.3g} times the size 1/sqrt(inputs)"


def _part_of(name: str) -> str:
    """The part that a parameter belongs to."""
    first, _, rest = name.partition(".")
    if first == "layers":
        return f"layers.{rest.partition('.')[0]}"
    return "head" if first in {"head", "embedding_projection_out"} else "embedding"


@contextlib.contextmanager
def _watched(model: Transformer, seen: dict[str, Tensor]) -> Iterator[None]:
    """While inside, sizes are noted: of what the first layer reads, of what each layer and the head give."""

    def note(name: str, output: Tensor) -> None:
        whole = output.full_tensor() if hasattr(output, "full_tensor") else output  # DTensors are slow to import
        seen[name] = whole.float().square().mean().sqrt()

    first = model.layers[0].register_forward_pre_hook(lambda _module, inputs: note("embedding", inputs[0]))
    named = [(f"layers.{index}", layer) for index, layer in enumerate(model.layers)] + [("head", model.head)]
    after = [
        part.register_forward_hook(lambda _module, _inputs, output, name=name: note(name, output))
        for name, part in named
    ]
    try:
        yield
    finally:
        for hook in (first, *after):
            hook.remove()
