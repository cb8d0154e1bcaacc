"""Memory of a training step by part, and the list of kept activations.

Peak memory is a sweep over time, never a sum of totals. Where the real module is at hand, `tracer` sweeps it; here the
step is looked at in the few moments in which it can be fullest, each with what is alive in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchledger.formula.count import default_recipe
from torchledger.formula.model import layer_kinds, walk
from torchledger.formula.moments import Moment, moments
from torchledger.formula.optimizer import state_bytes, trained
from torchledger.formula.parameters import parameters
from torchledger.formula.value import Activation
from torchledger.ledger import Amount
from torchledger.spec import ModelSpec, Recipe

PEAK_ASSUMPTION = (
    "the peak is the fullest of named moments, of tensors only: neither what a layer's backward pass makes for itself "
    "nor scratch inside kernels is in it (a trace has the first, a calibrated machine the second)"
)


@dataclass(frozen=True, slots=True)
class MemoryPrediction:
    """Memory of a training step on one device, bytes of tensors.

    Attributes:
        parameter_bytes: the parameters, tied ones once.
        buffer_bytes: rotary tables, ALiBi slopes, router biases: what the model holds besides.
        gradient_bytes: one gradient a parameter.
        optimizer_state_bytes: what the optimizer holds between steps.
        input_bytes: token ids and targets of the step.
        activation_bytes: storages kept for the backward pass at the end of a micro-batch's forward pass.
        activations: the list of them.
        recomputed: with recompute, what one layer's backward pass makes again; empty otherwise.
        moments: the moments that can be the peak.
        assumptions: what was assumed.
    """

    parameter_bytes: Amount
    buffer_bytes: Amount
    gradient_bytes: Amount
    optimizer_state_bytes: Amount
    input_bytes: Amount
    activation_bytes: Amount
    activations: tuple[Activation, ...]
    recomputed: tuple[Activation, ...]
    moments: tuple[Moment, ...]
    assumptions: tuple[str, ...]

    @property
    def peak(self) -> Moment:
        """The fullest moment."""
        return max(self.moments, key=lambda moment: moment.total_bytes)

    @property
    def peak_bytes(self) -> Amount:
        """Bytes alive at the fullest moment."""
        return self.peak.total_bytes


def memory(spec: ModelSpec, recipe: Recipe | None = None) -> MemoryPrediction:
    """Memory of a step of `spec` on one CPU device, after the first step (the optimizer's state exists).

    Args:
        spec: the model.
        recipe: how it is trained; nothing is `default_recipe(spec)`.

    >>> from torchledger.spec import AttentionSpec, MlpSpec
    >>> tiny = ModelSpec("tiny", 100, 64, 2, 32, AttentionSpec(4), MlpSpec(64))
    >>> memory(tiny, Recipe(batch_size=2, sequence_length=8)).parameter_bytes  # 4·(2·100·32 + 2·(10240 + 64) + 32)
    108160
    """
    recipe = default_recipe(spec) if recipe is None else recipe
    tape = walk(spec, recipe)
    moved = trained(parameters(spec, recipe))
    elements: Amount = sum(each.total for each in moved)
    kept, recomputed = tape.activations(), tape.activations(recomputed=True)
    standing = {
        "parameters": 4 * elements,
        "buffers": buffer_bytes(spec, recipe.sequence_length),
        "optimizer state": state_bytes(moved, recipe.optimizer),
        "inputs": 2 * 8 * recipe.tokens_per_step,
    }
    activation_bytes: Amount = sum(each.total_bytes for each in kept)
    return MemoryPrediction(
        parameter_bytes=standing["parameters"],
        buffer_bytes=standing["buffers"],
        gradient_bytes=4 * elements,
        optimizer_state_bytes=standing["optimizer state"],
        input_bytes=standing["inputs"],
        activation_bytes=activation_bytes,
        activations=kept,
        recomputed=recomputed,
        moments=moments(spec, recipe, standing, recomputed or kept, activation_bytes),
        assumptions=(*dict.fromkeys(tape.assumptions), PEAK_ASSUMPTION),
    )


def buffer_bytes(spec: ModelSpec, sequence_length: Amount) -> Amount:
    """Bytes of the tensors that the model holds besides its parameters, all FP32.

    Cosines and sines [sequence_length, rotary_size] for each base of frequencies, ALiBi's slope of each head, a bias on
    the scores of each router.
    """
    position = spec.position
    tables = 2 * 4 * sequence_length * spec.rotary_size
    held: Amount = tables if position.kind == "rotary" else 0
    if position.kind == "rotary" and position.local_theta is not None:
        held = held + tables
    if position.kind == "alibi":
        held = held + 4 * spec.attention.num_heads
    if spec.moe is not None and spec.moe.router_bias:
        mixtures = sum(count for (_, is_moe), count in layer_kinds(spec).items() if is_moe)
        held = held + 4 * spec.moe.num_experts * mixtures
    return held
