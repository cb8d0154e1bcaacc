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
from torchledger.ledger import Amount
from torchledger.spec import MlpSpec, ModelSpec, MoeSpec, NormSpec, Recipe

Shape: TypeAlias = tuple[Amount, ...]

#: Format in which the optimizer sees a parameter: under autocast (`bf16`) only the matmuls run in BF16.
_STORED_AS = {"fp32": "fp32", "bf16": "fp32"}


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
    """

    name: str
    shape: Shape
    times: Amount = 1
    number_format: str = "fp32"
    trainable: bool = True
    tied_to: str | None = None

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
    """Every parameter of the model, in the order of its modules.

    Args:
        spec: the model.
        recipe: how it is trained; it decides the number format. Nothing is FP32.
        expand: one entry for every tensor, instead of one for all equal layers and experts.
    """
    number_format = _STORED_AS[recipe.precision] if recipe else "fp32"
    layers = _expanded_layers(spec) if expand else _folded_layers(spec)
    return tuple(replace(each, number_format=number_format) for each in (*_before(spec), *layers, *_after(spec)))


def embedding_parameters(spec: ModelSpec) -> tuple[Parameter, ...]:
    """Those that stand before the layers."""
    return tuple(_before(spec))


def layer_parameters(spec: ModelSpec, *, is_moe: bool) -> tuple[Parameter, ...]:
    """Those of one layer, dense or a mixture; equal experts are one entry."""
    return tuple(replace(each, name=f"layers.*.{each.name}") for each in _layer(spec, is_moe=is_moe))


def head_parameters(spec: ModelSpec) -> tuple[Parameter, ...]:
    """Those that stand behind the layers; a tied head is there, and says whose it is."""
    return tuple(_after(spec))


def num_parameters(spec: ModelSpec) -> Amount:
    """Trained numbers in the model, a tied head counted once."""
    return sum(each.total for each in parameters(spec))


def num_active_parameters(spec: ModelSpec) -> Amount:
    """Numbers that one token meets: of the routed experts only those it visits. The same as all without experts.

    Embedding and head are in it, as in Mixtral's "13B active" (arXiv:2401.04088 section 2).
    """
    moe = spec.moe
    if moe is None:
        return num_parameters(spec)
    idle = moe.num_experts - moe.experts_per_token
    expert = sum(each.num_elements for each in _layer(spec, is_moe=True) if _EXPERT in each.name)
    return num_parameters(spec) - _layer_counts(spec).get(True, 0) * idle * expert


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


def _folded_layers(spec: ModelSpec) -> Iterator[Parameter]:
    folded: dict[tuple[str, Shape], Parameter] = {}
    for is_moe, count in _layer_counts(spec).items():
        for each in _layer(spec, is_moe=is_moe):
            name, times = f"layers.*.{each.name}", each.times * count
            before = folded.get((name, each.shape))
            times = times if before is None else before.times + times
            folded[name, each.shape] = replace(each, name=name, times=times)
    yield from folded.values()


def _expanded_layers(spec: ModelSpec) -> Iterator[Parameter]:
    for index in range(spec.num_layers):
        layer = list(_layer(spec, is_moe=spec.layer(index).is_moe))
        routed = [each for each in layer if _EXPERT in each.name]
        for each in layer:
            if _EXPERT not in each.name:
                yield replace(each, name=f"layers.{index}.{each.name}")
            elif each is routed[0]:
                yield from _expanded_experts(f"layers.{index}.", routed)


def _expanded_experts(prefix: str, routed: Sequence[Parameter]) -> Iterator[Parameter]:
    for j in range(routed[0].times):
        for each in routed:
            yield replace(each, name=prefix + each.name.replace(_EXPERT, f"experts.{j}."), times=1)


def _layer_counts(spec: ModelSpec) -> dict[bool, Amount]:
    """How many layers are mixtures (True) and how many are not, in order of their first. Windows have no parameters."""
    if spec.moe is None:
        return {False: spec.num_layers}
    counts: dict[bool, Amount] = {}
    for group in spec.layer_groups:
        counts[group.is_moe] = counts.get(group.is_moe, 0) + group.count
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
