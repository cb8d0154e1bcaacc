"""Scratch memory of CUDA kernels: what an operation holds between its entry and its return, beside its results.

Each amount is read from PyTorch 2.13's source, which is named with it. What a library decides at run time (cuDNN's
convolutions, CUB's own look-back buffers) is unknown by name, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from torchledger.memory import Timeline
from torchledger.tracer.call import Call
from torchledger.tracer.signature import Signature, TensorMeta
from torchledger.tracer.targets.cuda.reductions import buffers_of_sum

_KERNEL = "aten/src/ATen/native/cuda"
_FLASH = "aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp: mha_bwd"
_INDEX_BYTES, _FLOAT_BYTES = 8, 4


@dataclass(frozen=True, slots=True)
class Held:
    """One buffer that a kernel holds.

    Attributes:
        name: its name in the source.
        num_bytes: its size in bytes, `None` where a library decides it at run time.
        source: file and function.
    """

    name: str
    num_bytes: int | None
    source: str


Rule: TypeAlias = Callable[[Mapping[str, Any]], tuple[Held, ...]]


def scratch_of(signature: Signature) -> tuple[Held, ...]:
    """Buffers that this call holds at its own peak, results left out; empty where none are known of."""
    namespace, op, _ = signature.op.split(".")
    rule = _RULES.get(op) if namespace == "aten" else None
    return rule(signature.bound()) if rule is not None else ()


def scratch_by_call(calls: Iterable[Call]) -> dict[int, tuple[Held, ...]]:
    """Buffers by the index of the call, calls without any left out."""
    known: dict[Signature, tuple[Held, ...]] = {}
    found: dict[int, tuple[Held, ...]] = {}
    for index, call in enumerate(calls):
        held = known.get(call.signature)
        if held is None:
            held = known[call.signature] = scratch_of(call.signature)
        if held:
            found[index] = held
    return found


def inside_by_call(calls: Iterable[Call], timeline: Timeline) -> dict[int, int]:
    """Most bytes that each call holds between its entry and its return, its results included.

    This is what `Timeline.peak(internal=...)` takes. Buffers of unknown size add nothing: `scratch_by_call` names them.

    Args:
        calls: the calls of a trace.
        timeline: its timeline.
    """
    made: dict[int, int] = {}
    for block in timeline.blocks:
        if block.call >= 0 and not block.on_host and block.part != "workspace":
            made[block.call] = made.get(block.call, 0) + block.num_bytes
    return {index: made.get(index, 0) + known_bytes(held) for index, held in scratch_by_call(calls).items()}


def known_bytes(held: Iterable[Held]) -> int:
    """Bytes of the buffers whose size is known."""
    return sum(buffer.num_bytes or 0 for buffer in held)


def _embedding(arguments: Mapping[str, Any]) -> tuple[Held, ...]:
    """Up to 3,072 indices one kernel adds rows; beyond, indices are sorted and rows summed by segments of ten."""
    grad, indices = arguments["grad_output"], arguments["indices"]
    count, width = indices.num_elements, grad.shape[-1]
    copied = _contiguous_copy("grad", grad, f"{_KERNEL}/Embedding.cu: embedding_dense_backward_cuda")
    if count <= 3072 and not arguments.get("scale_grad_by_freq"):
        return copied
    sorting, summing = f"{_KERNEL}/Embedding.cu", f"{_KERNEL}/EmbeddingBackwardKernel.cu"
    index = indices.dtype.itemsize
    segments = min(count, arguments["num_weights"])
    partial = count // 10 + segments
    accumulator = max(grad.dtype.itemsize, _FLOAT_BYTES)
    return (
        *copied,
        Held("sorted_indices", count * index, sorting),
        Held("orig_indices", count * index, sorting),
        *((Held("count", count * index, sorting),) if arguments.get("scale_grad_by_freq") else ()),
        Held("segment_offsets", segments * index, summing),
        Held("num_of_segments", _INDEX_BYTES, summing),
        Held("partials_per_segment", segments * index, summing),
        Held("partials_per_segment_offset", segments * index, summing),
        Held("num_of_partial_segments", _INDEX_BYTES, summing),
        Held("partial_segment_offset", partial * index, summing),
        Held("grad_weight_per_segment", partial * width * accumulator, summing),
    )


def _accumulated_index(arguments: Mapping[str, Any]) -> tuple[Held, ...]:
    """`index_put` that accumulates sorts its linear indices (Indexing.cu: index_put_with_sort_kernel)."""
    if not arguments.get("accumulate"):
        return ()
    given = [meta for meta in arguments["indices"][1:] if isinstance(meta, TensorMeta)]
    if not given or any(str(meta.dtype) == "torch.bool" for meta in given):
        return (Held("linearIndex", None, f"{_KERNEL}/Indexing.cu: index_put_with_sort_kernel"),)
    count = max(meta.num_elements for meta in given)
    source = f"{_KERNEL}/Indexing.cu: index_put_with_sort_kernel"
    names = ("linearIndex", "sorted_indices", "orig_indices", "range")
    buffers = tuple(Held(name, count * _INDEX_BYTES, source) for name in names)
    return (*buffers, *_radix_sort(count, _INDEX_BYTES))


def _radix_sort(count: int, key_bytes: int) -> tuple[Held, ...]:
    """CUB's sort of pairs has a second buffer for keys and values, and look-back state that it sizes at run time."""
    source = "aten/src/ATen/cuda/cub-RadixSortPairs.cu: cub::DeviceRadixSort::SortPairs"
    return (
        Held("alternate keys and values", count * (key_bytes + _INDEX_BYTES), source),
        Held("look-back state", None, source),
    )


def _flash_backward(arguments: Mapping[str, Any]) -> tuple[Held, ...]:
    """Sums of dO·O, the accumulator of dQ in FP32 with rounded tokens and heads; K and V heads spread out under GQA."""
    query, key = arguments["query"], arguments["key"]
    batch, heads, queries, size = query.shape
    key_heads, keys = key.shape[1:3]
    rounded = math.ceil(queries / 128) * 128
    width = math.ceil(size / 32) * 32 if size <= 128 else math.ceil(size / 64) * 64
    spread = batch * keys * heads * size * query.dtype.itemsize if heads != key_heads else 0
    return (
        *_contiguous_copy("contiguous_grad_out", _by_tokens(arguments["grad_out"]), _FLASH),
        *_contiguous_copy("contiguous_out", _by_tokens(arguments["out"]), _FLASH),
        Held("softmax_d", batch * heads * rounded * _FLOAT_BYTES, _FLASH),
        Held("dq_accum", batch * rounded * heads * width * _FLOAT_BYTES, _FLASH),
        *((Held("dk_expanded", spread, _FLASH), Held("dv_expanded", spread, _FLASH)) if spread else ()),
    )


def _efficient_backward(arguments: Mapping[str, Any]) -> tuple[Held, ...]:
    """Sums of dO·O; in halves also accumulators, whose size the kernel decides."""
    source = "aten/src/ATen/native/transformers/cuda/attention_backward.cu: _efficient_attention_backward"
    query = arguments["query"]
    batch, heads, queries, _ = query.shape
    grad = _contiguous_copy("grad_out", _by_tokens(arguments["grad_out_"]), source)
    delta = Held("delta", batch * heads * queries * _FLOAT_BYTES, source)
    if query.dtype.itemsize == _FLOAT_BYTES:
        return (*grad, delta)
    return (*grad, delta, Held("workspace", None, source))


def _cudnn(name: str) -> Rule:
    def rule(_arguments: Mapping[str, Any]) -> tuple[Held, ...]:
        return (Held(f"cuDNN workspace of {name}", None, "cuDNN chooses an algorithm at run time"),)

    return rule


def _sum(arguments: Mapping[str, Any]) -> tuple[Held, ...]:
    """Over leading dimensions many blocks share an output, and their parts meet in global memory (Reduce.cuh)."""
    meta, dims = arguments["self"], arguments.get("dim")
    if not dims:
        return ()
    accumulator = max(meta.dtype.itemsize, _FLOAT_BYTES)
    held = buffers_of_sum(
        meta.shape, meta.stride, [dim % len(meta.shape) for dim in dims if isinstance(dim, int)], accumulator
    )
    if held is None:
        return ()
    source = f"{_KERNEL}/Reduce.cuh: gpu_reduce_kernel"
    return Held("buffer", held[0], source), Held("semaphores", held[1], source)


def _sort(arguments: Mapping[str, Any]) -> tuple[Held, ...]:
    """Rows beyond 4,096 are sorted by CUB, keys and indices out of place (Sort.cpp, Sort.cu)."""
    values = arguments["self"]
    if not values.shape or values.shape[arguments.get("dim", -1) or -1] <= 4096:
        return ()
    source = f"{_KERNEL}/Sort.cu: launch_stable_sort_kernel"
    count = values.num_elements
    return (
        Held("indices before sorting", count * _INDEX_BYTES, source),
        *_radix_sort(count, values.dtype.itemsize),
    )


def _by_tokens(meta: TensorMeta) -> TensorMeta:
    """[batch, heads, tokens, size] seen as the kernel sees it, [batch, tokens, heads, size]."""

    def turned(sizes: tuple[int, ...]) -> tuple[int, ...]:
        batch, heads, tokens, size = sizes
        return batch, tokens, heads, size

    return TensorMeta(turned(meta.shape), turned(meta.stride), meta.dtype)


def _contiguous_copy(name: str, meta: TensorMeta, source: str) -> tuple[Held, ...]:
    """A copy where the kernel asks for a contiguous operand and does not get one."""
    step = 1
    for size, stride in zip(reversed(meta.shape), reversed(meta.stride), strict=True):
        if size != 1 and stride != step:
            return (Held(name, meta.num_elements * meta.dtype.itemsize, source),)
        step *= size
    return ()


_RULES: dict[str, Rule] = {
    "embedding_dense_backward": _embedding,
    "sum": _sum,
    "index_put": _accumulated_index,
    "index_put_": _accumulated_index,
    "_index_put_impl_": _accumulated_index,
    "_unsafe_index_put": _accumulated_index,
    "_scaled_dot_product_flash_attention_backward": _flash_backward,
    "_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "_scaled_dot_product_cudnn_attention": _cudnn("attention"),
    "_scaled_dot_product_cudnn_attention_backward": _cudnn("attention's backward"),
    "convolution": _cudnn("a convolution"),
    "convolution_backward": _cudnn("a convolution's backward"),
    "_cudnn_rnn": _cudnn("a recurrent layer"),
    "_cudnn_rnn_backward": _cudnn("a recurrent layer's backward"),
    "sort": _sort,
    "argsort": _sort,
}
