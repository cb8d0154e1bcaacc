"""The whole model walked on the tape: embedding, layers, final norm, head, loss."""

from __future__ import annotations

from dataclasses import replace

from torchledger import ops
from torchledger.formula.attention import attention, latent_attention
from torchledger.formula.core import Context
from torchledger.formula.dense import embedding, linear, norm
from torchledger.formula.mlp import mixture, mlp
from torchledger.formula.pointwise import add, scaled, soft_capped
from torchledger.formula.tape import Tape, Value
from torchledger.ledger import Amount
from torchledger.ops import causal_pairs
from torchledger.spec import LayerGroup, ModelSpec, Recipe


def walk(spec: ModelSpec, recipe: Recipe) -> Tape:
    """The forward pass of one micro-batch and its backward pass, equal layers once with their number."""
    tape = Tape(recipe.precision)
    h, contexts = walk_embedding(tape, spec, recipe)
    for (window, is_moe, number_format), group in stream_kinds(spec, h.number_format).items():
        with tape.inside("layers.*", group.count):
            x = tape.receive("input", replace(h, number_format=number_format))
            h = walk_layer(tape, spec, recipe, x, contexts[window], is_moe=is_moe)
    walk_head(tape, spec, recipe, h)
    return tape


def walk_embedding(tape: Tape, spec: ModelSpec, recipe: Recipe) -> tuple[Value, dict[int, Context]]:
    """What stands before the layers: the residual stream, and for every window what its layers share."""
    tokens = tape.given("tokens", (_micro_batch(recipe), recipe.sequence_length), "int64")
    contexts = {window: _context(tape, spec, recipe, window) for window in _windows(spec)}
    return _embedded(tape, spec, tokens), contexts


def walk_head(tape: Tape, spec: ModelSpec, recipe: Recipe, h: Value) -> None:
    """What stands behind the layers: final norm, head, loss."""
    h = tape.receive("output of the last layer", h)
    if spec.norm.final:
        h = norm(tape, "final_norm", h, spec.norm)
    if spec.embedding_size is not None:
        h = linear(tape, "embedding_projection_out", h, spec.embedding_size)
    logits = linear(tape, "head", h, spec.vocab_size, bias=spec.head_bias)
    if spec.final_logit_soft_cap is not None:
        logits = soft_capped(tape, "", logits, "logits")
    _loss(tape, logits)
    if recipe.accumulation_steps != 1:
        tape.save_number("mul", "share of the micro-batch")
        tape.run("", ops.pointwise("scale", 1), "fp32")


def layer_kinds(spec: ModelSpec) -> dict[tuple[int, bool], Amount]:
    """How many layers have this window and are mixtures or not, in order of their first."""
    kinds: dict[tuple[int, bool], Amount] = {}
    for group in spec.layer_groups:
        key = (group.window, group.is_moe)
        kinds[key] = kinds.get(key, 0) + group.count
    return kinds


def _windows(spec: ModelSpec) -> tuple[int, ...]:
    return tuple(dict.fromkeys(window for window, _ in layer_kinds(spec)))


def stream_kinds(spec: ModelSpec, number_format: str) -> dict[tuple[int, bool, str], LayerGroup]:
    """The same, with the format of the stream that such layers read; `first` is the first of them, `count` all.

    Under autocast an embedding that is projected enters in BF16, and leaves that format in the first layer that adds
    FP32 to it: the weights of experts are FP32, and so is what a norm with a weight writes.
    """
    kinds: dict[tuple[int, bool, str], LayerGroup] = {}

    def put(group: LayerGroup, count: Amount, first: int) -> None:
        key = (group.window, group.is_moe, number_format)
        before = kinds.get(key)
        known = LayerGroup(group.window, group.is_moe, first, 0) if before is None else before
        kinds[key] = replace(known, count=known.count + count)

    norm_writes = spec.norm.placement != "pre" and spec.norm.affine
    for group in spec.layer_groups:
        count, first = group.count, group.first
        if number_format != "fp32" and (norm_writes or group.is_moe):
            put(group, 1, first)
            count, first, number_format = count - 1, first + 1, "fp32"
        if count != 0:
            put(group, count, first)
    return kinds


def needs_mask(spec: ModelSpec, recipe: Recipe, window: int) -> bool:
    """Whether layers with this window add a mask tensor: the fused kernel knows plain causality by itself."""
    part = spec.attention
    return bool(
        window != 0 or recipe.attention == "math" or part.logit_soft_cap is not None or spec.position.kind == "alibi"
    )


def walk_layer(tape: Tape, spec: ModelSpec, recipe: Recipe, h: Value, context: Context, *, is_moe: bool) -> Value:
    """One of a run of equal layers; with full recompute it keeps its input and mask only."""
    if recipe.recompute == "none":
        return _layer(tape, spec, recipe, h, context, is_moe=is_moe)
    with tape.checkpoint((h,) if context.mask is None else (h, context.mask)):
        return _layer(tape, spec, recipe, h, context, is_moe=is_moe)


def _layer(tape: Tape, spec: ModelSpec, recipe: Recipe, h: Value, context: Context, *, is_moe: bool) -> Value:
    placement = spec.norm.placement
    before, after = placement in {"pre", "sandwich"}, placement in {"post", "sandwich"}

    def normed(path: str, x: Value, *, stands: bool) -> Value:
        return norm(tape, path, x, spec.norm) if stands else x

    def mixed(x: Value) -> Value:
        with tape.inside("attention"):
            walked = latent_attention if spec.attention.kind == "latent" else attention
            return walked(tape, spec, recipe, x, context)

    def fed(x: Value) -> Value:
        if is_moe and spec.moe is not None:
            return mixture(tape, x, spec.mlp, spec.moe)
        return mlp(tape, "mlp", x, spec.mlp)

    if spec.parallel:
        tape.fan_out("", h, 2 if spec.norm.shared else 3)
        x = normed("attention_norm", h, stands=before)
        if spec.norm.shared:
            tape.fan_out("", x, 2)
        first = add(tape, "", h, mixed(x))
        return add(tape, "", first, fed(x if spec.norm.shared else normed("mlp_norm", h, stands=before)), "output")
    if placement == "residual":
        tape.fan_out("", h, 2)
        h = norm(tape, "attention_post_norm", add(tape, "", h, mixed(h)), spec.norm)
        tape.fan_out("", h, 2)
        return norm(tape, "mlp_post_norm", add(tape, "", h, fed(h)), spec.norm)
    tape.fan_out("", h, 2)
    x = mixed(normed("attention_norm", h, stands=before))
    h = add(tape, "", h, normed("attention_post_norm", x, stands=after))
    tape.fan_out("", h, 2)
    x = fed(normed("mlp_norm", h, stands=before))
    return add(tape, "", h, normed("mlp_post_norm", x, stands=after), "output")


def _embedded(tape: Tape, spec: ModelSpec, tokens: Value) -> Value:
    D, E = spec.hidden_size, spec.embedding_size
    h = embedding(tape, "embedding", tokens, spec.vocab_size, D if E is None else E)
    if E is not None:
        h = linear(tape, "embedding_projection", h, D)
    if spec.embedding_scale:
        h = scaled(tape, "", h, "scaled embedding")
    if spec.position.kind == "learned":
        positions = tape.make("positions", (tokens.shape[1],), "int64", requires_grad=False)
        tape.run("", ops.fill(tokens.shape[1], element_bytes=8), "int64", positions)
        h = add(tape, "", h, embedding(tape, "position_embedding", positions, spec.num_position_rows, D))
    return norm(tape, "embedding_norm", h, spec.norm) if spec.embedding_norm else h


def _context(tape: Tape, spec: ModelSpec, recipe: Recipe, window: int) -> Context:
    T = recipe.sequence_length
    pairs = causal_pairs(T, window)
    if not needs_mask(spec, recipe, window):
        return Context(None, pairs)
    number_format = "bf16" if recipe.precision == "bf16" else "fp32"
    heads = spec.attention.num_heads if spec.position.kind == "alibi" else 1
    mask = tape.make(f"mask of window {window}", (heads, T, T), number_format, requires_grad=False)
    tape.run("", ops.pointwise("compare", T * T, element_bytes=8, output_element_bytes=1), "int64")
    if heads != 1:
        tape.run("", ops.pointwise("mul", mask.num_elements), "fp32")
    tape.run("", ops.pointwise("masked_fill", mask.num_elements, element_bytes=mask.element_bytes), number_format, mask)
    return Context(mask, pairs)


def _loss(tape: Tape, logits: Value) -> None:
    """Mean cross-entropy in FP32. Keeps the log-probabilities of all tokens, and two numbers."""
    rows, columns = logits.shape[0] * logits.shape[1], logits.shape[-1]
    logits = tape.cast("", "logits in FP32", logits, "fp32")
    logs = tape.make("log-probabilities", (rows, columns), "fp32")
    total, loss = tape.make("number of targets", (), "fp32"), tape.make("loss", (), "fp32")
    tape.run("", ops.log_softmax(rows, columns), "fp32", logs)
    tape.save("log_softmax", logs)
    tape.then("", ops.log_softmax_backward(rows, columns), "fp32")
    tape.run("", ops.nll_loss(rows, columns), "fp32", total, loss)
    tape.save("nll_loss", total)
    tape.save("the training step", loss)
    tape.then("", ops.nll_loss_backward(rows, columns), "fp32")


def _micro_batch(recipe: Recipe) -> Amount:
    return recipe.micro_batch_size if recipe.accumulation_steps != 1 else recipe.batch_size
