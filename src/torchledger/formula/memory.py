"""Memory of a training step by part, and the list of kept activations.

Peak memory is a sweep over time, never a sum of totals. The trainer's own step on a CPU is rehearsed, tensor by tensor
(`lifetimes`): its peak is the traced one to the byte. On other kernels the step is looked at in the few moments in
which it can be fullest, each with what is alive in it (`part_moments`).
"""

from __future__ import annotations

from dataclasses import dataclass

from torchledger.formula.count import default_recipe
from torchledger.formula.kernels import Kernels, kernels_of
from torchledger.formula.lifetimes import is_rehearsed, rehearsed
from torchledger.formula.model import layer_kinds, walk
from torchledger.formula.moments import Moment, drawing, narrowing, tied_sum
from torchledger.formula.optimizer import master_bytes, state_bytes, trained
from torchledger.formula.parameters import parameters
from torchledger.formula.part_moments import part_moments
from torchledger.formula.parts import parts
from torchledger.formula.precision import FORMATS
from torchledger.formula.value import ELEMENT_BYTES, Activation
from torchledger.ledger import Amount
from torchledger.spec import ModelSpec, Recipe

#: What a peak is, rehearsed tensor by tensor; and what it is where kernels are known by what they keep alone.
PEAK_ASSUMPTION = "the peak is of tensors only: scratch inside kernels is not in it (a calibrated machine has it)"
MOMENTS_ASSUMPTION = (
    "the peak is the fullest of named moments, each an upper bound of its tensors; scratch inside kernels is not in it"
)


@dataclass(frozen=True, slots=True)
class MemoryPrediction:
    """Memory of a training step on one device, bytes of tensors.

    Attributes:
        parameter_bytes: the parameters, tied ones once.
        buffer_bytes: rotary tables, ALiBi slopes, router biases: what the model holds besides.
        gradient_bytes: one gradient a parameter.
        optimizer_state_bytes: what the optimizer holds between steps.
        input_bytes: token ids and targets of the step, and documents where they are kept apart.
        activation_bytes: storages kept for the backward pass at the end of a micro-batch's forward pass.
        activations: the list of them.
        recomputed: with recompute, what one layer's backward pass makes again; empty otherwise.
        moments: the moments that can be the peak.
        assumptions: what was assumed.
        master_bytes: a second copy of the parameters that the optimizer updates; 0 where there is none.
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
    master_bytes: Amount = 0

    @property
    def peak(self) -> Moment:
        """The fullest moment."""
        return max(self.moments, key=lambda moment: moment.total_bytes)

    @property
    def peak_bytes(self) -> Amount:
        """Bytes alive at the fullest moment."""
        return self.peak.total_bytes


def memory(spec: ModelSpec, recipe: Recipe | None = None, *, kernels: Kernels | str = "cpu") -> MemoryPrediction:
    """Memory of a step of `spec` on one device, after the first step (the optimizer's state exists).

    Args:
        spec: the model.
        recipe: how it is trained; nothing is `default_recipe(spec)`.
        kernels: which kernels run, a set or its name (`KERNELS`).

    Raises:
        SpecError: no kernels of that name.

    >>> from torchledger.spec import AttentionSpec, MlpSpec
    >>> tiny = ModelSpec("tiny", 100, 64, 2, 32, AttentionSpec(4), MlpSpec(64))
    >>> memory(tiny, Recipe(batch_size=2, sequence_length=8)).parameter_bytes  # 4·(2·100·32 + 2·(10240 + 64) + 32)
    108160
    """
    recipe, chosen = default_recipe(spec) if recipe is None else recipe, kernels_of(kernels)
    tape, formats = walk(spec, recipe, chosen), FORMATS[recipe.precision]
    own = parameters(spec, recipe)
    moved = trained(own)
    kept, recomputed = tape.activations(), tape.activations(recomputed=True)
    standing = {
        "parameters": ELEMENT_BYTES[formats.stored] * sum(each.total for each in own),
        "buffers": buffer_bytes(spec, recipe.sequence_length),
        "optimizer state": state_bytes(moved, recipe.optimizer, recipe.precision),
        "inputs": (3 if recipe.document_mask else 2) * 8 * recipe.tokens_per_step,
    }
    gradient_bytes: Amount = ELEMENT_BYTES[formats.gradient] * sum(each.total for each in moved)
    if formats.master:
        standing["master weights"] = master_bytes(moved, recipe.precision)
    activation_bytes: Amount = sum(each.total_bytes for each in kept)
    is_exact = is_rehearsed(spec, recipe, chosen)
    if is_exact:
        found = (*rehearsed(spec, recipe, standing), *drawing(own, standing["buffers"]))
    else:
        found = part_moments(parts(spec, recipe, kernels=chosen, by_layer=True), recipe, standing, gradient_bytes)
        if not recipe.lora_rank and not recipe.trainable:
            found = (*found, *tied_sum(spec, recipe, standing, gradient_bytes))
    return MemoryPrediction(
        parameter_bytes=standing["parameters"],
        buffer_bytes=standing["buffers"],
        gradient_bytes=gradient_bytes,
        optimizer_state_bytes=standing["optimizer state"],
        input_bytes=standing["inputs"],
        activation_bytes=activation_bytes,
        activations=kept,
        recomputed=recomputed,
        moments=(*found, *narrowing(own, standing["buffers"], recipe.precision)),
        assumptions=(*dict.fromkeys(tape.assumptions), PEAK_ASSUMPTION if is_exact else MOMENTS_ASSUMPTION),
        master_bytes=standing.get("master weights", 0),
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
        mixtures = mixtures + spec.num_prediction_layers * spec.layer_groups[-1].is_moe
        held = held + 4 * spec.moe.num_experts * mixtures
    return held
