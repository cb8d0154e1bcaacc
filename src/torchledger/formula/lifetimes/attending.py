"""Attention as the trainer's allocates: projections, rotation, core (`trainer.attention`, `.latent`, `.position`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchledger.formula.dense import weighted
from torchledger.formula.joint import is_joint
from torchledger.formula.lifetimes.checkpoint import checkpoint
from torchledger.formula.lifetimes.cores import core
from torchledger.formula.lifetimes.modules import Module
from torchledger.formula.lifetimes.operations import add, clamped, mul, plain
from torchledger.formula.lifetimes.tensors import Tensor
from torchledger.formula.lifetimes.views import cast, expand, joined, reshape, sliced, split


@dataclass(frozen=True, slots=True)
class Context:
    """What layers of one kind share.

    Attributes:
        mask: added to the scores; nothing where the kernel knows causality by itself.
        tables: of cosines or sines; nothing without rotary positions.
    """

    mask: Tensor | None
    tables: Tensor | None


def attention(module: Module, x: Tensor, context: Context) -> Tensor:
    """MHA, GQA or MQA."""
    spec = module.spec
    query, key, value = _projected(module, x)
    query, key = _normed(module, "query", query), _normed(module, "key", key)
    module.memory.place = module.path
    if context.tables is not None:
        query, key = rotated(query, context.tables), rotated(key, context.tables)
    return module.linear(
        "output", attended(module, query, key, value, context), spec.hidden_size, bias=spec.attention.output_bias
    )


def _projected(module: Module, x: Tensor) -> Sequence[Tensor]:
    """Queries, keys and values by heads, each by its own product or all by one."""
    spec, part = module.spec, module.spec.attention
    heads, few, size = part.num_heads, spec.num_key_value_heads, spec.head_size
    widths = {"query": heads * size, "key": few * size, "value": few * size}
    recipe = module.recipe
    if is_joint(part, recipe.precision, rank=module.rank, targets=recipe.lora_targets):
        y = module.joint_linear("query_key_value", x, widths, bias=part.query_bias)
        return split(_heads(module, y), heads, few, few, dim=2)
    biases = (part.query_bias, part.key_bias, part.value_bias)
    return [
        _heads(module, module.linear(name, x, width, bias=bias))
        for (name, width), bias in zip(widths.items(), biases, strict=True)
    ]


def _heads(module: Module, projected: Tensor) -> Tensor:
    if module.spec.attention.clip is not None:
        projected = clamped(projected)
    size = module.spec.head_size
    return reshape(projected, *projected.shape[:-1], projected.shape[-1] // size, size)


def _normed(module: Module, name: str, heads: Tensor) -> Tensor:
    spec = module.spec
    kind = spec.attention.query_key_norm
    if kind == "none":
        return heads
    if kind == "head":
        return module.norm(f"{name}_norm", heads, weighted(spec.norm))
    *rows, count, size = heads.shape
    flat = reshape(heads, *rows, count * size)
    return reshape(module.norm(f"{name}_norm", flat, weighted(spec.norm)), *heads.shape)


def latent_attention(module: Module, x: Tensor, context: Context) -> Tensor:
    """MLA."""
    spec, part, heads = module.spec, module.spec.attention, module.spec.attention.num_heads
    plain_size, turned_size, value_size = part.plain_head_size, part.rotary_head_size, part.value_head_size
    plain_query, turned_query = split(_latent_query(module, x), plain_size, turned_size)
    latent, turned_key = split(
        module.linear("key_value_down", x, part.key_value_rank + turned_size), part.key_value_rank, turned_size
    )
    expanded = module.linear(
        "key_value_up",
        module.norm("key_value_down_norm", latent, weighted(spec.norm)),
        heads * (plain_size + value_size),
    )
    expanded = reshape(expanded, *expanded.shape[:-1], heads, plain_size + value_size)
    plain_key, value = split(expanded, plain_size, value_size)
    turned_key = reshape(turned_key, *turned_key.shape[:-1], 1, turned_size)
    module.memory.place = module.path
    if context.tables is not None:
        turned_query, turned_key = rotated(turned_query, context.tables), rotated(turned_key, context.tables)
    query = joined(plain_query, turned_query)
    key = joined(plain_key, expand(turned_key, *plain_key.shape[:-1], turned_size))
    return module.linear("output", attended(module, query, key, value, context), spec.hidden_size)


def _latent_query(module: Module, x: Tensor) -> Tensor:
    spec, part = module.spec, module.spec.attention
    width = part.num_heads * spec.head_size
    if part.query_rank == 0:
        query = module.linear("query", x, width)
    else:
        query = module.linear(
            "query_up",
            module.norm("query_down_norm", module.linear("query_down", x, part.query_rank), weighted(spec.norm)),
            width,
        )
    return reshape(query, *query.shape[:-1], part.num_heads, spec.head_size)


def rotated(x: Tensor, tables: Tensor) -> Tensor:
    """The first dimensions of each head turned, in FP32 (`trainer.position.rotate`)."""
    size = tables.shape[-1]
    turned = cast(sliced(x, size), "fp32")
    rest = sliced(x, x.shape[-1] - size) if x.shape[-1] != size else None
    first, second = split(turned, size // 2, size // 2)
    turned = _sum_of_turned(turned, first, second, tables, x.number_format)
    return turned if rest is None else joined(turned, rest)


def _sum_of_turned(turned: Tensor, first: Tensor, second: Tensor, tables: Tensor, number_format: str) -> Tensor:
    return cast(add(mul(turned, tables), mul(joined(plain(second), first), tables)), number_format)


def attended(module: Module, query: Tensor, key: Tensor, value: Tensor, context: Context) -> Tensor:
    """The core; with selective recompute its operands alone are kept, and it runs again."""
    inner = module.inside("core")
    inner.memory.place = inner.path

    def run(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        return (core(inner, query, key, value, mask),)

    if module.recipe.recompute != "selective":
        return run(query, key, value, context.mask)[0]
    draws = module.spec.attention.dropout > 0
    return checkpoint(module.memory, run, query, key, value, context.mask, draws=draws)[0]
