"""The parameters of a model, by name, shape and number: exact to the last one.

Names are those of the module the trainer builds. Equal layers fold into one entry, `layers.*.mlp.up.weight` times
num_layers; `expand=True` names every one. Sizes may be symbols, as long as layers are equal.

With V vocabulary, D hidden size, L layers, H heads of size d, K key-value heads and F inner width, a Llama has

    V·D                                  embedding
    L·(2·D·H·d + 2·D·K·d + 3·D·F + 2·D)  query and output, key and value, gate-up-down, two norms
    D + V·D                              final norm, head

    >>> from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec
    >>> llama = ModelSpec("llama", 32000, 4096, 32, 4096, AttentionSpec(32), MlpSpec(11008))
    >>> num_parameters(llama)
    6738415616
    >>> 32000*4096 + 32*(4*4096*4096 + 3*4096*11008 + 2*4096) + 4096 + 32000*4096
    6738415616
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from torchledger import formats
from torchledger.formula.precision import FORMATS
from torchledger.formula.training import WHOLE, Training, adapts, layer_runs, trains
from torchledger.ledger import Amount
from torchledger.spec import MlpSpec, ModelSpec, MoeSpec, NormSpec, Recipe

Shape: TypeAlias = tuple[Amount, ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter tensor, or as many equal ones as `times` says.

    Attributes:
        name: path of the tensor; `*` stands for every layer or expert.
        shape: its sizes; the weight of a linear map is [out, in].
        times: how many tensors of this name there are.
        number_format: format it is stored in.
        trainable: false for a bias that the optimizer does not move (DeepSeek-V3's router bias, arXiv:2412.19437
            section 2.1.2). Such a tensor is a buffer in the published models and in no published count.
        tied_to: name of the tensor that this one *is*; counted there, not here.
        frozen: whether the recipe leaves it as it is: it has no gradient and no optimizer state.
    """

    name: str
    shape: Shape
    times: Amount = 1
    number_format: str = "fp32"
    trainable: bool = True
    tied_to: str | None = None
    frozen: bool = False

    @property
    def num_elements(self) -> Amount:
        """Numbers in one of the tensors.

        >>> Parameter("head.weight", (50257, 768)).num_elements
        38597376
        """
        product: Amount = 1
        for size in self.shape:
            product = product * size
        return product

    @property
    def num_bytes(self) -> Amount:
        """Bytes of one of the tensors."""
        return self.num_elements * formats.get(self.number_format).bytes_per_element

    @property
    def total(self) -> Amount:
        """Numbers in all of them; 0 where the tensor is another one's, or not trained."""
        return self.num_elements * self.times if self.tied_to is None and self.trainable else 0


def parameters(spec: ModelSpec, recipe: Recipe | None = None, expand: bool = False) -> tuple[Parameter, ...]:
    """Every parameter of the model, in the order of its modules; with a recipe its adapters too.

    Args:
        spec: the model.
        recipe: how it is trained; it decides the number format, what is frozen and what is adapted. Nothing is FP32.
        expand: one entry for every tensor, instead of one for all equal layers and experts.
    """
    layers = _expanded_layers(spec, recipe) if expand else _folded_layers(spec, recipe)
    predictions = prediction_parameters(spec, recipe) if spec.num_prediction_layers else ()
    if expand:
        predictions = tuple(_expanded_predictions(spec, predictions))
    else:
        predictions = tuple(replace(each, times=each.times * spec.num_prediction_layers) for each in predictions)
    ends = embedding_parameters(spec, recipe), head_parameters(spec, recipe)
    return (*ends[0], *(_stored(each, recipe) for each in layers), *predictions, *ends[1])


def embedding_parameters(spec: ModelSpec, recipe: Recipe | None = None) -> tuple[Parameter, ...]:
    """Those that stand before the layers."""
    frozen = recipe is not None and not trains(recipe, "embedding")
    return tuple(_stored(replace(each, frozen=frozen), recipe) for each in _before(spec))


def layer_parameters(
    spec: ModelSpec, recipe: Recipe | None = None, training: Training = WHOLE, *, is_moe: bool
) -> tuple[Parameter, ...]:
    """Those of one layer, dense or a mixture; equal experts are one entry."""
    return tuple(
        _stored(replace(each, name=f"layers.*.{each.name}"), recipe)
        for each in _trained_layer(spec, recipe, training, is_moe=is_moe)
    )


def prediction_parameters(spec: ModelSpec, recipe: Recipe | None = None) -> tuple[Parameter, ...]:
    """Those of one prediction layer: two norms, a map [D, 2·D], a layer, a norm before the shared head.

    DeepSeek-V3's one has 11.6B beside the model's 671B; its README_WEIGHTS.md tells 11.5B, which is the layer without
    the map of 2·7168² = 0.1B.
    """
    D, frozen = spec.hidden_size, recipe is not None and not trains(recipe, "prediction")
    own = (
        *_norm("hidden_norm", D, spec.norm),
        *_norm("embedding_norm", D, spec.norm),
        *_linear("projection", D, 2 * D),
        *(replace(each, name=f"layer.{each.name}") for each in _layer(spec, is_moe=spec.layer_groups[-1].is_moe)),
        *(_norm("final_norm", D, spec.norm) if spec.norm.final else ()),
    )
    return tuple(_stored(replace(each, name=f"prediction.*.{each.name}", frozen=frozen), recipe) for each in own)


def head_parameters(spec: ModelSpec, recipe: Recipe | None = None) -> tuple[Parameter, ...]:
    """Those that stand behind the layers; a tied head is there, and says whose it is."""
    found = []
    for each in _after(spec):
        part = "embedding" if spec.tied_embeddings and each.name.startswith("head.") else "head"
        frozen = recipe is not None and not trains(recipe, part)
        found.append(_stored(replace(each, frozen=frozen), recipe))
    return tuple(found)


def _stored(parameter: Parameter, recipe: Recipe | None) -> Parameter:
    """In the format that the layers read it in: FP32 under autocast, where only matmuls run in another."""
    return parameter if recipe is None else replace(parameter, number_format=FORMATS[recipe.precision].stored)


def num_parameters(spec: ModelSpec) -> Amount:
    """Numbers in the model as it is published, a tied head counted once.

    Prediction layers help its training and are no part of it: DeepSeek-V3 has 671B without its one
    (`num_prediction_parameters`).
    """
    if spec.num_prediction_layers:
        spec = replace(spec, num_prediction_layers=0)
    return sum(each.total for each in parameters(spec))


def num_prediction_parameters(spec: ModelSpec) -> Amount:
    """Numbers in the prediction layers; embedding and head, which they share with the model, are not in it."""
    if not spec.num_prediction_layers:
        return 0
    return spec.num_prediction_layers * sum(each.total for each in prediction_parameters(spec))


def num_active_parameters(spec: ModelSpec) -> Amount:
    """Numbers that one token meets: of the routed experts only those it visits. The same as all without experts.

    Embedding and head are in it, as in Mixtral's "13B active" (arXiv:2401.04088 section 2).
    """
    moe = spec.moe
    if moe is None:
        return num_parameters(spec)
    idle = moe.num_experts - moe.experts_per_token
    expert = sum(each.num_elements for each in _layer(spec, is_moe=True) if _EXPERT in each.name)
    mixtures = sum(count for (is_moe, _), count in _layer_counts(spec).items() if is_moe)
    return num_parameters(spec) - mixtures * idle * expert


def num_embedding_parameters(spec: ModelSpec) -> Amount:
    """Numbers in the tables that are looked up: tokens and learned positions. An untied head is a matmul, not a table.

    What remains is the N of scaling laws where the head is tied (arXiv:2001.08361 section 2.1).
    """
    tables = ("embedding.weight", "position_embedding.weight")
    return sum(each.total for each in parameters(spec) if each.name in tables)


_EXPERT = "experts.*."


def _before(spec: ModelSpec) -> Iterator[Parameter]:
    D = spec.hidden_size
    E = D if spec.embedding_size is None else spec.embedding_size
    yield Parameter("embedding.weight", (spec.vocab_size, E))
    if spec.embedding_size is not None:
        yield Parameter("embedding_projection.weight", (D, E))
    if spec.position.kind == "learned":
        yield Parameter("position_embedding.weight", (spec.num_position_rows, D))
    if spec.embedding_norm:
        yield from _norm("embedding_norm", D, spec.norm)


def _after(spec: ModelSpec) -> Iterator[Parameter]:
    D = spec.hidden_size
    E = D if spec.embedding_size is None else spec.embedding_size
    if spec.norm.final:
        yield from _norm("final_norm", D, spec.norm)
    if spec.embedding_size is not None:
        yield Parameter("embedding_projection_out.weight", (E, D))
    tied_to = "embedding.weight" if spec.tied_embeddings else None
    yield Parameter("head.weight", (spec.vocab_size, E), tied_to=tied_to)
    if spec.head_bias:
        yield Parameter("head.bias", (spec.vocab_size,))


def _folded_layers(spec: ModelSpec, recipe: Recipe | None) -> Iterator[Parameter]:
    folded: dict[tuple[str, Shape, bool], Parameter] = {}
    for (is_moe, training), count in _layer_counts(spec, recipe).items():
        for each in _trained_layer(spec, recipe, training, is_moe=is_moe):
            name, times = f"layers.*.{each.name}", each.times * count
            key = (name, each.shape, each.frozen)
            before = folded.get(key)
            times = times if before is None else before.times + times
            folded[key] = replace(each, name=name, times=times)
    yield from folded.values()


def _expanded_layers(spec: ModelSpec, recipe: Recipe | None) -> Iterator[Parameter]:
    runs = layer_runs(spec, Recipe() if recipe is None else recipe)
    layers = [(group.first + i, group, training) for group, training in runs for i in range(group.count)]
    for index, group, training in layers:
        yield from _expanded(f"layers.{index}.", list(_trained_layer(spec, recipe, training, is_moe=group.is_moe)))


def _expanded_predictions(spec: ModelSpec, own: Sequence[Parameter]) -> Iterator[Parameter]:
    for index in range(spec.num_prediction_layers):
        yield from _expanded(
            f"prediction.{index}.", [replace(each, name=each.name.removeprefix("prediction.*.")) for each in own]
        )


def _expanded(prefix: str, layer: Sequence[Parameter]) -> Iterator[Parameter]:
    routed = [each for each in layer if _EXPERT in each.name]
    for each in layer:
        if _EXPERT not in each.name:
            yield replace(each, name=f"{prefix}{each.name}")
        elif each is routed[0]:
            yield from _expanded_experts(prefix, routed)


def _trained_layer(spec: ModelSpec, recipe: Recipe | None, training: Training, *, is_moe: bool) -> Iterator[Parameter]:
    """A layer's parameters, frozen or not, with an adapter's two matrices behind each matrix that has one.

    Source: LoRA, arXiv:2106.09685, section 4.1: B [outputs, rank] A [rank, inputs].
    """
    adapted = recipe if training.adapted else None
    for each in _layer(spec, is_moe=is_moe):
        yield each if training.trains else replace(each, frozen=True)
        module = each.name.removesuffix(".weight")
        if adapted is None or len(each.shape) != 2 or module.endswith(("router", "shared_gate")):
            continue
        if adapted.lora_rank and adapts(module, adapted.lora_targets):
            outputs, inputs = each.shape
            yield Parameter(f"{module}.lora_a.weight", (adapted.lora_rank, inputs), each.times)
            yield Parameter(f"{module}.lora_b.weight", (outputs, adapted.lora_rank), each.times)


def _expanded_experts(prefix: str, routed: Sequence[Parameter]) -> Iterator[Parameter]:
    for j in range(routed[0].times):
        for each in routed:
            yield replace(each, name=prefix + each.name.replace(_EXPERT, f"experts.{j}."), times=1)


def _layer_counts(spec: ModelSpec, recipe: Recipe | None = None) -> dict[tuple[bool, Training], Amount]:
    """How many layers are mixtures (True) or not, and trained alike, in order of their first. Windows are no matter."""
    counts: dict[tuple[bool, Training], Amount] = {}
    for group, training in layer_runs(spec, Recipe() if recipe is None else recipe):
        key = (group.is_moe, replace(training, reached=True))
        counts[key] = counts.get(key, 0) + group.count
    return counts


def _layer(spec: ModelSpec, *, is_moe: bool) -> Iterator[Parameter]:
    """The parameters of one layer under their names within it; `times` is the number of experts, or 1."""
    D, norm = spec.hidden_size, spec.norm
    reads = norm.placement in {"pre", "sandwich"}
    writes = norm.placement in {"post", "sandwich", "residual"}
    if reads:
        yield from _norm("attention_norm", D, norm)
    yield from _latent_attention(spec) if spec.attention.kind == "latent" else _attention(spec)
    if writes:
        yield from _norm("attention_post_norm", D, norm)
    if reads and not (spec.parallel and norm.shared):
        yield from _norm("mlp_norm", D, norm)
    if is_moe and spec.moe is not None:
        yield from _mixture(D, spec.moe, spec.mlp)
    else:
        yield from _mlp("mlp", D, spec.mlp.intermediate_size, spec.mlp)
    if writes:
        yield from _norm("mlp_post_norm", D, norm)


def _attention(spec: ModelSpec) -> Iterator[Parameter]:
    D, d, attention = spec.hidden_size, spec.head_size, spec.attention
    wide, narrow = attention.num_heads * d, spec.num_key_value_heads * d
    yield from _linear("attention.query", wide, D, attention.query_bias)
    yield from _linear("attention.key", narrow, D, attention.key_bias)
    yield from _linear("attention.value", narrow, D, attention.value_bias)
    if attention.query_key_norm != "none":
        per_head = attention.query_key_norm == "head"
        yield Parameter("attention.query_norm.weight", (d if per_head else wide,))
        yield Parameter("attention.key_norm.weight", (d if per_head else narrow,))
    yield from _linear("attention.output", D, wide, attention.output_bias)


def _latent_attention(spec: ModelSpec) -> Iterator[Parameter]:
    """MLA (arXiv:2405.04434, equations 9 to 19): keys and values, and queries, through a narrow waist. No biases."""
    D, attention = spec.hidden_size, spec.attention
    H, plain, rotary = attention.num_heads, attention.plain_head_size, attention.rotary_head_size
    value = attention.value_head_size
    query_rank, rank = attention.query_rank, attention.key_value_rank
    if query_rank == 0:
        yield from _linear("attention.query", H * (plain + rotary), D)
    else:
        yield from _linear("attention.query_down", query_rank, D)
        yield Parameter("attention.query_down_norm.weight", (query_rank,))
        yield from _linear("attention.query_up", H * (plain + rotary), query_rank)
    yield from _linear("attention.key_value_down", rank + rotary, D)
    yield Parameter("attention.key_value_down_norm.weight", (rank,))
    yield from _linear("attention.key_value_up", H * (plain + value), rank)
    yield from _linear("attention.output", D, H * value)


def _mixture(D: Amount, moe: MoeSpec, mlp: MlpSpec) -> Iterator[Parameter]:
    """Router, routed experts and shared expert; experts have the kind, activation and biases of the dense MLP."""
    yield Parameter("mlp.router.weight", (moe.num_experts, D))
    if moe.router_bias:
        yield Parameter("mlp.router.bias", (moe.num_experts,), trainable=False)
    for each in _mlp(f"mlp.{_EXPERT[:-1]}", D, moe.intermediate_size, mlp):
        yield replace(each, times=moe.num_experts)
    if moe.shared_intermediate_size != 0:
        yield from _mlp("mlp.shared", D, moe.shared_intermediate_size, mlp)
        if moe.shared_gate:
            yield Parameter("mlp.shared_gate.weight", (1, D))


def _mlp(name: str, D: Amount, F: Amount, mlp: MlpSpec) -> Iterator[Parameter]:
    if mlp.kind == "gated":
        yield from _linear(f"{name}.gate", F, D, mlp.up_bias)
    yield from _linear(f"{name}.up", F, D, mlp.up_bias)
    yield from _linear(f"{name}.down", D, F, mlp.down_bias)


def _linear(name: str, outputs: Amount, inputs: Amount, bias: bool = False) -> Iterator[Parameter]:
    yield Parameter(f"{name}.weight", (outputs, inputs))
    if bias:
        yield Parameter(f"{name}.bias", (outputs,))


def _norm(name: str, size: Amount, norm: NormSpec) -> Iterator[Parameter]:
    if norm.affine:
        yield Parameter(f"{name}.weight", (size,))
        if norm.kind == "layer" and norm.bias:
            yield Parameter(f"{name}.bias", (size,))
