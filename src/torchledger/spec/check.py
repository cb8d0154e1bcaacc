"""What makes a `ModelSpec` impossible: every mistake at once, each with the path of its field and what would do.

A spec whose sizes are symbols is not checked: there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from torchledger.spec.model import AttentionSpec, ModelSpec, MoeSpec, SpecError

Mistake: TypeAlias = tuple[str, str]


def mistakes(spec: ModelSpec) -> list[Mistake]:
    """Every reason why the model cannot be, as (dotted path, message); none is an empty list.

    >>> from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec
    >>> mistakes(ModelSpec("odd", 100, 64, 2, 30, AttentionSpec(num_heads=4), MlpSpec(64)))
    [('hidden_size', '30 is not divisible by num_heads 4; give attention.head_size, or heads that divide it')]
    """
    sizes, values = list(_sizes(spec)), [*_values(spec), *_norm(spec)]
    if sizes:  # what divides by sizes or compares them says nothing where one of them is impossible
        return sizes + values
    return [*_attention(spec), *_position(spec), *values, *_embedding(spec), *_mixture(spec)]


def require(spec: ModelSpec) -> None:
    """Refuse a model that cannot be.

    Raises:
        SpecError: with every mistake in it.
    """
    refuse(spec.name or "the model", mistakes(spec))


def refuse(what: str, found: Sequence[Mistake]) -> None:
    """Raise all mistakes as one error, if there are any.

    Raises:
        SpecError: there is a mistake; one stands on the line, more stand below it.
    """
    if len(found) == 1:
        raise SpecError(f"{what}: {found[0][0]}: {found[0][1]}")
    if found:
        lines = "".join(f"\n  {path}: {message}" for path, message in found)
        raise SpecError(f"{what}: {len(found)} mistakes{lines}")


def _sizes(spec: ModelSpec) -> Iterator[Mistake]:
    attention, moe = spec.attention, spec.moe
    positive = {
        "vocab_size": spec.vocab_size,
        "max_sequence_length": spec.max_sequence_length,
        "num_layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "embedding_size": spec.embedding_size,
        "attention.num_heads": attention.num_heads,
        "attention.num_key_value_heads": attention.num_key_value_heads,
        "attention.head_size": attention.head_size,
        "mlp.intermediate_size": spec.mlp.intermediate_size,
        "position.num_learned": spec.position.num_learned,
    }
    natural = {
        "attention.query_rank": attention.query_rank,
        "attention.key_value_rank": attention.key_value_rank,
        "attention.rotary_head_size": attention.rotary_head_size,
        "attention.plain_head_size": attention.plain_head_size,
        "attention.value_head_size": attention.value_head_size,
        "position.offset": spec.position.offset,
        "num_prediction_layers": spec.num_prediction_layers,
    }
    if moe is not None:
        positive |= {
            "moe.num_experts": moe.num_experts,
            "moe.experts_per_token": moe.experts_per_token,
            "moe.intermediate_size": moe.intermediate_size,
            "moe.every": moe.every,
        }
        natural |= {
            "moe.shared_intermediate_size": moe.shared_intermediate_size,
            "moe.num_leading_dense_layers": moe.num_leading_dense_layers,
        }
    for path, value in positive.items():
        if value is not None and value < 1:
            yield path, f"must be at least 1, is {value}"
    for path, value in natural.items():
        if value < 0:
            yield path, f"must be at least 0, is {value}"


def _attention(spec: ModelSpec) -> Iterator[Mistake]:
    attention = spec.attention
    yield from _latent(spec) if attention.kind == "latent" else _heads(spec)
    if len(attention.window_pattern) > spec.num_layers:
        length = len(attention.window_pattern)
        yield "attention.window_pattern", f"has {length} entries for {spec.num_layers} layers; give at most one each"


def _values(spec: ModelSpec) -> Iterator[Mistake]:
    """Windows, caps and dropouts, each by itself."""
    attention = spec.attention
    for index, window in enumerate(attention.window_pattern):
        if window < 0:
            yield f"attention.window_pattern[{index}]", f"must be at least 0 (0 is full attention), is {window}"
    for name, value in (
        ("attention.logit_soft_cap", attention.logit_soft_cap),
        ("attention.scale", attention.scale),
        ("attention.clip", attention.clip),
        ("final_logit_soft_cap", spec.final_logit_soft_cap),
    ):
        if value is not None and value <= 0:
            yield name, f"must be more than 0, is {value}; leave it out for none"
    for name, dropout in (("attention.dropout", attention.dropout), ("dropout", spec.dropout)):
        if not 0 <= dropout < 1:
            yield name, f"must be at least 0 and below 1, is {dropout}"


def _heads(spec: ModelSpec) -> Iterator[Mistake]:
    attention, H = spec.attention, spec.attention.num_heads
    if attention.head_size is None and spec.hidden_size % H != 0:
        message = (
            f"{spec.hidden_size} is not divisible by num_heads {H}; give attention.head_size, or heads that divide it"
        )
        yield "hidden_size", message
    K = attention.num_key_value_heads
    if K is not None and H % K != 0:
        yield "attention.num_key_value_heads", f"{K} does not divide num_heads {H}; each serves equally many heads"
    for name in _LATENT_FIELDS:
        if getattr(attention, name) != 0:
            yield (
                f"attention.{name}",
                'is used by latent attention only; set attention.kind = "latent" or leave it out',
            )


_LATENT_FIELDS = ("query_rank", "key_value_rank", "rotary_head_size", "plain_head_size", "value_head_size")


def _latent(spec: ModelSpec) -> Iterator[Mistake]:
    attention = spec.attention
    for name in ("key_value_rank", "plain_head_size", "value_head_size"):
        if getattr(attention, name) == 0:
            yield f"attention.{name}", "is needed by latent attention; give its size"
    if spec.position.kind == "rotary" and attention.rotary_head_size == 0:
        yield (
            "attention.rotary_head_size",
            'is needed by latent attention with rotary positions, or position.kind "none"',
        )
    if spec.position.kind != "rotary" and attention.rotary_head_size != 0:
        yield "attention.rotary_head_size", f"needs rotary positions; position.kind is {spec.position.kind!r}"
    yield from _unused_by_latent(attention)


def _unused_by_latent(attention: AttentionSpec) -> Iterator[Mistake]:
    if attention.head_size is not None:
        message = "is not used by latent attention; give plain_head_size, rotary_head_size and value_head_size"
        yield "attention.head_size", message
    if attention.num_key_value_heads not in {None, attention.num_heads}:
        yield "attention.num_key_value_heads", "latent attention has as many as heads; leave it out"
    for name in ("query_bias", "key_bias", "value_bias", "output_bias"):
        if getattr(attention, name):
            yield f"attention.{name}", "latent attention has no biases; leave it out"
    if attention.clip is not None:
        yield "attention.clip", "is not defined for latent attention; leave it out"
    if attention.query_key_norm != "none":
        yield "attention.query_key_norm", "latent attention has norms of its own; leave it out"


def _position(spec: ModelSpec) -> Iterator[Mistake]:
    position = spec.position
    if position.kind == "rotary":
        if not 0 < position.rotary_fraction <= 1:
            yield "position.rotary_fraction", f"must be more than 0 and at most 1, is {position.rotary_fraction}"
        elif spec.attention.kind == "latent":
            if spec.rotary_size % 2 != 0:
                yield "attention.rotary_head_size", f"{spec.rotary_size} is odd; rotation needs pairs"
        elif _has_head_size(spec) and (spec.rotary_size < 2 or spec.rotary_size % 2 != 0):
            message = (
                f"{spec.rotary_size} of {spec.head_size} dimensions of a head; rotation needs pairs, an even number"
            )
            yield "position.rotary_fraction" if position.rotary_fraction < 1 else "attention.head_size", message
        for name, theta in (("theta", position.theta), ("local_theta", position.local_theta)):
            if theta is not None and theta <= 0:
                yield f"position.{name}", f"must be more than 0, is {theta}"
    if position.kind == "learned":
        if position.num_learned is not None and position.num_learned < spec.max_sequence_length:
            rows, longest = position.num_learned, spec.max_sequence_length
            yield "position.num_learned", f"{rows} rows do not reach max_sequence_length {longest}"
        return
    if position.num_learned is not None:
        yield "position.num_learned", f"is used by learned positions only; position.kind is {position.kind!r}"
    if position.offset != 0:
        yield "position.offset", f"is used by learned positions only; position.kind is {position.kind!r}"


def _has_head_size(spec: ModelSpec) -> bool:
    """Whether the head size is said or follows; where it does not, that is the mistake, and told elsewhere."""
    attention = spec.attention
    return attention.head_size is not None or spec.hidden_size % attention.num_heads == 0


def _norm(spec: ModelSpec) -> Iterator[Mistake]:
    norm = spec.norm
    if norm.epsilon <= 0:
        yield "norm.epsilon", f"must be more than 0, is {norm.epsilon}"
    if norm.bias and norm.kind == "rms":
        yield "norm.bias", 'RMSNorm has no bias; set norm.kind = "layer" or leave it out'
    if norm.bias and not norm.affine:
        yield "norm.bias", "a norm without weight has no bias either; set norm.affine = true or leave it out"
    if norm.unit_offset and not norm.affine:
        yield "norm.unit_offset", "needs a weight; set norm.affine = true or leave it out"
    if norm.shared and not spec.parallel:
        yield "norm.shared", "is for parallel branches only; set parallel = true or leave it out"
    if spec.parallel and norm.placement != "pre":
        yield "norm.placement", f'parallel branches have their norms before them ("pre"), not {norm.placement!r}'


def _embedding(spec: ModelSpec) -> Iterator[Mistake]:
    if spec.embedding_size == spec.hidden_size:
        yield "embedding_size", f"equals hidden_size {spec.hidden_size}; leave it out, it would add two projections"


def _mixture(spec: ModelSpec) -> Iterator[Mistake]:
    moe = spec.moe
    if moe is None:
        return
    if moe.experts_per_token > moe.num_experts:
        yield "moe.experts_per_token", f"{moe.experts_per_token} is more than the {moe.num_experts} experts there are"
    if moe.capacity_factor < 0:
        yield "moe.capacity_factor", f"must be at least 0 (nothing dropped or padded), is {moe.capacity_factor}"
    if moe.shared_gate and moe.shared_intermediate_size == 0:
        yield "moe.shared_gate", "needs a shared expert; give moe.shared_intermediate_size"
    yield from _no_mixture(spec, moe)


def _no_mixture(spec: ModelSpec, moe: MoeSpec) -> Iterator[Mistake]:
    if not any(group.is_moe for group in spec.layer_groups):
        leading, every = moe.num_leading_dense_layers, moe.every
        message = f"no layer of {spec.num_layers} has experts with num_leading_dense_layers {leading} and every {every}"
        yield "moe", message
