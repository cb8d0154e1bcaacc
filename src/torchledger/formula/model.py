"""The whole model walked on the tape: embedding, layers, final norm, head, loss."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from torchledger import ops
from torchledger.formula.attention import attention, latent_attention
from torchledger.formula.core import kernel_of
from torchledger.formula.dense import embedding, linear, norm
from torchledger.formula.heads import Context
from torchledger.formula.kernels import KERNELS, Kernels
from torchledger.formula.loss import cross_entropy
from torchledger.formula.loss_in_pieces import loss_in_pieces
from torchledger.formula.mixture import mixture
from torchledger.formula.mlp import mlp
from torchledger.formula.pointwise import add, dropped, residual, scaled, soft_capped
from torchledger.formula.precision import FORMATS
from torchledger.formula.tape import Tape
from torchledger.formula.training import WHOLE, Training, layer_runs, trains
from torchledger.formula.value import Value
from torchledger.ledger import Amount
from torchledger.ops import causal_pairs
from torchledger.spec import LayerGroup, ModelSpec, Recipe


def walk(spec: ModelSpec, recipe: Recipe, kernels: Kernels = KERNELS["cpu"]) -> Tape:
    """The forward pass of one micro-batch and its backward pass, equal layers once with their number."""
    tape = Tape(recipe.precision, kernels)
    h, contexts = walk_embedding(tape, spec, recipe)
    for kind, runs in layer_kinds_of(spec, recipe, h.number_format, kernels).items():
        with tape.inside("layers.*", sum(run.count for run in runs)):
            x = tape.receive("input", replace(h, number_format=kind.number_format, requires_grad=kind.training.reached))
            h = walk_layer(tape, spec, recipe, x, contexts[kind.window], kind=kind)
    if spec.num_prediction_layers:
        tape.fan_out("", h, 1 + spec.num_prediction_layers)
    h = tape.receive("output of the last layer", h)
    walk_head(tape, spec, recipe, h)
    if spec.num_prediction_layers:
        with tape.inside("prediction.*", spec.num_prediction_layers):
            x = h if tape.keeper(h) else tape.receive("input", h)
            walk_prediction(tape, spec, recipe, x, contexts[spec.layer_groups[-1].window])
    return tape


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What layers that are walked once have in common.

    Attributes:
        window: attention window, 0 is full.
        is_moe: a mixture of experts.
        number_format: of the stream that they read.
        training: what of them is trained.
        again: whether they run again in the backward pass.
    """

    window: int
    is_moe: bool
    number_format: str
    training: Training = WHOLE
    again: bool = False


def walk_embedding(tape: Tape, spec: ModelSpec, recipe: Recipe) -> tuple[Value, dict[int, Context]]:
    """What stands before the layers: the residual stream, and for every window what its layers share."""
    tape.trains, tape.lora_rank = trains(recipe, "embedding"), 0
    tokens = tape.given("tokens", (_micro_batch(recipe), recipe.sequence_length), "int64")
    contexts = {window: _context(tape, spec, recipe, window) for window in _windows(spec)}
    h = _embedded(tape, spec, tokens)
    return (dropped(tape, "", h, "embedding") if spec.dropout > 0 else h), contexts


def walk_prediction(tape: Tape, spec: ModelSpec, recipe: Recipe, h: Value, context: Context) -> None:
    """A layer that predicts one token further (DeepSeek-V3, arXiv:2412.19437, equations 21 to 24).

    h' = M [norm(h); norm(embedding of the next token)] with M [D, 2·D], a layer of the last kind, the model's own head
    and a loss.
    """
    tape.trains, tape.lora_rank = trains(recipe, "prediction"), 0
    last = spec.layer_groups[-1]
    known = norm(tape, "hidden_norm", h, spec.norm)
    tape.trains, tape.is_cast = trains(recipe, "embedding"), True
    with tape.inside("", from_root=True):
        tokens = tape.make("next tokens", (h.shape[0], h.shape[1]), "int64", requires_grad=False)
        pieces = ops.pointwise("clamp", tokens.num_elements, element_bytes=8)
        embedded = _embedded(tape, spec, tape.op("", "", pieces, tokens, reads=()))
    tape.trains, tape.is_cast = trains(recipe, "prediction"), False
    ahead = norm(tape, "embedding_norm", embedded, spec.norm)
    both = tape.make("joined", (*h.shape[:-1], 2 * spec.hidden_size), known.number_format)
    pieces = ops.copy(both.num_elements, element_bytes=both.element_bytes, op="concatenate")
    both = tape.op("", "", pieces, both, reads=(known, ahead), backward=pieces)
    x = linear(tape, "projection", both, spec.hidden_size)
    x = tape.cast("", "input of the layer", x, h.number_format)
    again = recipe.recompute == "full"
    kind = LayerKind(last.window, last.is_moe, x.number_format, Training(trains=tape.trains), again)
    with tape.inside("layer"):
        x = walk_layer(tape, spec, recipe, x, context, kind=kind)
    tape.trains, tape.lora_rank = trains(recipe, "prediction"), 0
    walk_head(tape, spec, recipe, x, is_told=False)


def walk_head(tape: Tape, spec: ModelSpec, recipe: Recipe, h: Value, *, is_told: bool = True) -> None:
    """What stands behind the layers: final norm, head, loss. The loss of a prediction layer is not told."""
    if is_told:
        tape.trains, tape.lora_rank = trains(recipe, "head"), 0
    if spec.norm.final:
        h = norm(tape, "final_norm", h, spec.norm)
    tape.trains, tape.is_cast = trains(recipe, "head"), not is_told
    with tape.inside("", from_root=True):
        _head_and_loss(tape, spec, recipe, h, is_told=is_told)
    tape.is_cast = False
    if not is_told:
        return
    if spec.num_prediction_layers:
        tape.save_number("mul", "weight of the prediction layers")
        tape.run("", ops.pointwise("scale", 1), "fp32")
    if recipe.load_balance and any(is_moe for _, is_moe in layer_kinds(spec)):
        if tape.balances is not False:  # nothing is kept of a product without a gradient
            tape.save_number("mul", "weight of the load-balancing loss")
        tape.run("", ops.pointwise("scale", 1), "fp32")
    if recipe.accumulation_steps != 1:
        tape.save_number("mul", "share of the micro-batch")
        tape.run("", ops.pointwise("scale", 1), "fp32")


def _head_and_loss(tape: Tape, spec: ModelSpec, recipe: Recipe, h: Value, *, is_told: bool) -> None:
    if spec.embedding_size is not None:
        h = linear(tape, "embedding_projection_out", h, spec.embedding_size)
    if spec.tied_embeddings:
        tape.trains = trains(recipe, "embedding")
    if recipe.loss_chunk:
        loss = loss_in_pieces(tape, spec, h, recipe.loss_chunk)
    else:
        if not is_told:  # the batch's own targets are there anyway
            targets = tape.make("targets further ahead", (h.shape[0], h.shape[1]), "int64", requires_grad=False)
            tape.op("", "", ops.copy(targets.num_elements, element_bytes=8), targets, reads=())
            tape.save("nll_loss", targets)
        logits = linear(tape, "head", h, spec.vocab_size, bias=spec.head_bias)
        if spec.final_logit_soft_cap is not None:
            logits = soft_capped(tape, "", logits, "logits")
        loss = cross_entropy(tape, logits)
    if is_told:
        tape.save("the training step", loss)


def layer_kinds(spec: ModelSpec) -> dict[tuple[int, bool], Amount]:
    """How many layers have this window and are mixtures or not, in order of their first."""
    kinds: dict[tuple[int, bool], Amount] = {}
    for group in spec.layer_groups:
        key = (group.window, group.is_moe)
        kinds[key] = kinds.get(key, 0) + group.count
    return kinds


def _windows(spec: ModelSpec) -> tuple[int, ...]:
    return tuple(dict.fromkeys(window for window, _ in layer_kinds(spec)))


def layer_kinds_of(
    spec: ModelSpec, recipe: Recipe, number_format: str, kernels: Kernels, *, by_layer: bool = True
) -> dict[LayerKind, tuple[LayerGroup, ...]]:
    """Every kind of layer with the runs in which it stands, in order of the first.

    With `by_layer` those that run again are told from those that do not; else all are as the recipe's `recompute` says,
    for those who know by themselves which layers of a chunk run again.

    Under autocast an embedding that is projected enters in BF16, and leaves that format in the first layer that adds
    FP32 to it: the weights of experts are FP32, and so is what a norm with a weight writes, on CUDA any.
    """
    kinds: dict[LayerKind, tuple[LayerGroup, ...]] = {}
    stored = FORMATS[recipe.precision].stored
    norm_writes = spec.norm.placement != "pre" and (spec.norm.affine or kernels.device == "cuda")
    for group, training in layer_runs(spec, recipe):
        runs = [(group.first, group.count, number_format)]
        if number_format != stored and (norm_writes or group.is_moe):
            runs = [(group.first, 1, number_format), (group.first + 1, group.count - 1, stored)]
            number_format = stored
        for first, count, read in runs:
            if count == 0:
                continue
            for run, again in _again(LayerGroup(group.window, group.is_moe, first, count), recipe, by_layer=by_layer):
                kind = LayerKind(group.window, group.is_moe, read, training, again)
                kinds[kind] = (*kinds.get(kind, ()), run)
    return kinds


def _again(group: LayerGroup, recipe: Recipe, *, by_layer: bool) -> Iterator[tuple[LayerGroup, bool]]:
    """A run of layers cut where those that run again begin and end."""
    is_partial = recipe.recompute_every != 1 or recipe.recompute_layers != 0
    if recipe.recompute != "full" or not by_layer or not is_partial:
        yield group, recipe.recompute == "full"
        return
    indices = range(group.first, group.first + group.count)
    for again, run in itertools.groupby(indices, recipe.recomputes_layer):
        first, *rest = run
        yield replace(group, first=first, count=1 + len(rest)), again


def needs_mask(spec: ModelSpec, recipe: Recipe, window: int, kernels: Kernels = KERNELS["cpu"]) -> bool:
    """Whether layers with this window add a mask tensor: fused kernels know plain causality by themselves.

    FlashAttention knows windows, soft-caps and ALiBi too, and Megatron's softmax its mask.
    """
    kernel = kernel_of(spec, recipe, kernels)
    if kernel in {"flash", "scores"}:
        return False
    part = spec.attention
    is_plain = part.logit_soft_cap is None and spec.position.kind != "alibi" and not recipe.document_mask
    return bool(window != 0 or kernel == "math" or not is_plain)


def walk_layer(tape: Tape, spec: ModelSpec, recipe: Recipe, h: Value, context: Context, *, kind: LayerKind) -> Value:
    """One of a run of equal layers; with full recompute it keeps its input and mask only."""
    tape.trains, tape.lora_rank = kind.training.trains, recipe.lora_rank if kind.training.adapted else 0
    tape.lora_targets = recipe.lora_targets
    by_operation = recipe.recompute == "selective" and tape.kernels.selective == "operations"
    if not kind.again and not by_operation:
        return _layer(tape, spec, recipe, h, context, is_moe=kind.is_moe)
    with tape.checkpoint((h,) if context.mask is None else (h, context.mask), keeps_results=by_operation):
        return _layer(tape, spec, recipe, h, context, is_moe=kind.is_moe)


def _layer(tape: Tape, spec: ModelSpec, recipe: Recipe, h: Value, context: Context, *, is_moe: bool) -> Value:
    placement = spec.norm.placement
    before, after = placement in {"pre", "sandwich"}, placement in {"post", "sandwich"}

    def normed(path: str, x: Value, *, stands: bool) -> Value:
        return norm(tape, path, x, spec.norm) if stands else x

    def mixed(x: Value) -> Value:
        tape.read_formats["attention"] = x.number_format
        with tape.inside("attention"):
            walked = latent_attention if spec.attention.kind == "latent" else attention
            return walked(tape, spec, recipe, x, context)

    def fed(x: Value) -> Value:
        tape.read_formats["mlp"] = x.number_format
        if is_moe and spec.moe is not None:
            return mixture(tape, x, spec.mlp, spec.moe, balances=recipe.load_balance > 0)
        return mlp(tape, "mlp", x, spec.mlp)

    if spec.parallel:
        tape.fan_out("", h, 2 if spec.norm.shared else 3)
        x = normed("attention_norm", h, stands=before)
        if spec.norm.shared:
            tape.fan_out("", x, 2)
        first = residual(tape, h, mixed(x), spec.dropout)
        x = fed(x if spec.norm.shared else normed("mlp_norm", h, stands=before))
        return residual(tape, first, x, spec.dropout, "output")
    if placement == "residual":
        tape.fan_out("", h, 2)
        h = norm(tape, "attention_post_norm", residual(tape, h, mixed(h), spec.dropout), spec.norm)
        tape.fan_out("", h, 2)
        return norm(tape, "mlp_post_norm", residual(tape, h, fed(h), spec.dropout), spec.norm)
    tape.fan_out("", h, 2)
    x = mixed(normed("attention_norm", h, stands=before))
    h = residual(tape, h, normed("attention_post_norm", x, stands=after), spec.dropout)
    tape.fan_out("", h, 2)
    x = fed(normed("mlp_norm", h, stands=before))
    return residual(tape, h, normed("mlp_post_norm", x, stands=after), spec.dropout, "output")


def _embedded(tape: Tape, spec: ModelSpec, tokens: Value) -> Value:
    D, E = spec.hidden_size, spec.embedding_size
    h = embedding(tape, "embedding", tokens, spec.vocab_size, D if E is None else E)
    if E is not None:
        h = linear(tape, "embedding_projection", h, D)
    if spec.embedding_scale:
        h = scaled(tape, "", h, "scaled embedding")
    if spec.position.kind == "learned":
        positions = tape.make("positions", (tokens.shape[1],), "int64", requires_grad=False)
        tape.op("", "", ops.fill(tokens.shape[1], element_bytes=8), positions, reads=())
        h = add(tape, "", h, embedding(tape, "position_embedding", positions, spec.num_position_rows, D))
    return norm(tape, "embedding_norm", h, spec.norm) if spec.embedding_norm else h


def _context(tape: Tape, spec: ModelSpec, recipe: Recipe, window: int) -> Context:
    T = recipe.sequence_length
    pairs = causal_pairs(T, window)
    if not needs_mask(spec, recipe, window, tape.kernels):
        return Context(None, pairs)
    number_format = tape.formats.value
    heads = spec.attention.num_heads if spec.position.kind == "alibi" else 1
    sequences = (_micro_batch(recipe),) if recipe.document_mask else ()
    mask = tape.make(f"mask of window {window}", (*sequences, heads, T, T), number_format, requires_grad=False)
    tape.run("", ops.pointwise("compare", T * T, element_bytes=8, output_element_bytes=1), "int64")
    if heads != 1:
        tape.run("", ops.pointwise("mul", mask.num_elements), "fp32")
    pieces = ops.pointwise("masked_fill", mask.num_elements, element_bytes=mask.element_bytes)
    return Context(tape.op("", "", pieces, mask, reads=()), pairs)


def _micro_batch(recipe: Recipe) -> Amount:
    return recipe.micro_batch_size if recipe.accumulation_steps != 1 else recipe.batch_size
