"""Prices of collectives: torch's arguments -> elements of a chunk -> `ops`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from torchledger import ops
from torchledger.ledger import Work
from torchledger.ops import Piece, moved
from torchledger.tracer.pricing.seen import Seen, price_of
from torchledger.tracer.signature import TensorMeta

#: torch's operation -> whether its tensors of this name are one rank's chunk, or the whole that n ranks cut up.
_GATHERS = {
    "_allgather_base_": "input_tensor",
    "allgather_": "input_tensors",
    "allgather_coalesced_": "input_list",
    "allgather_into_tensor_coalesced_": "inputs",
    "all_gather_into_tensor": "input",
    "all_gather_into_tensor_out": "input",
    "all_gather_into_tensor_coalesced": "inputs",
}
_SCATTERS = {
    "_reduce_scatter_base_": "output_tensor",
    "reduce_scatter_": "output_tensors",
    "reduce_scatter_tensor_coalesced_": "outputs",
    "reduce_scatter_tensor": "",
    "reduce_scatter_tensor_out": "",
    "reduce_scatter_tensor_coalesced": "",
}
_ALL_REDUCES = {
    "allreduce_": "tensors",
    "allreduce_coalesced_": "tensors",
    "all_reduce": "input",
    "all_reduce_": "input",
    "all_reduce_coalesced": "inputs",
    "all_reduce_coalesced_": "inputs",
}


def _qualified(names: Iterable[str]) -> list[str]:
    """With the namespaces that an operation may stand in: aten has a `scatter_` of its own."""
    return [f"{namespace}::{name}" for name in names for namespace in ("c10d", "_c10d_functional")]


@price_of(*_qualified(_GATHERS))
def all_gather(seen: Seen) -> tuple[Piece, ...]:
    """Every rank's chunk to every rank."""
    chunks = _metas(seen.arguments[_GATHERS[seen.op]])
    return _told(seen, ops.all_gather(_size(seen), _elements(chunks), element_bytes=_element_bytes(chunks)))


@price_of(*_qualified(_SCATTERS))
def reduce_scatter(seen: Seen) -> tuple[Piece, ...]:
    """The sum of every rank's chunks, a chunk to each."""
    name = _SCATTERS[seen.op]
    chunks = _metas(seen.arguments[name]) if name else list(seen.results)
    return _told(seen, ops.reduce_scatter(_size(seen), _elements(chunks), element_bytes=_element_bytes(chunks)))


@price_of(*_qualified(_ALL_REDUCES))
def all_reduce(seen: Seen) -> tuple[Piece, ...]:
    """The sum to everyone. Where the ring cannot cut the tensor evenly, a rank's chunk is the average one."""
    buffers, group = _metas(seen.arguments[_ALL_REDUCES[seen.op]]), _size(seen)
    chunk = Fraction(_elements(buffers), group)
    (piece,) = ops.all_reduce(group, chunk, element_bytes=_element_bytes(buffers))
    work = Work(*(_whole(amount) for amount in piece.work.amounts()))
    shape = tuple((name, _whole(size)) for name, size in piece.shape)
    return _told(seen, (replace(piece, work=work, shape=shape),))


@price_of("c10d::alltoall_base_", "_c10d_functional::all_to_all_single", "_dtensor::shard_dim_alltoall")
def all_to_all(seen: Seen) -> tuple[Piece, ...]:
    """A part of one tensor to every rank: equal parts, or rows by their number."""
    handed_in = seen.tensor("input")
    handed_out = seen.optional("output") or seen.results[0]
    group, splits = seen.arguments.get("process_group") or seen.arguments["group_name"], _splits(seen)
    rows = handed_in.shape[0] if handed_in.shape else 1
    row = handed_in.num_elements // rows if rows else 0
    own = splits[group.rank] * row if splits else handed_in.num_elements // group.size
    size = handed_in.dtype.itemsize
    elements, received = handed_in.num_elements, handed_out.num_elements
    return _told(seen, ops.all_to_all(group.size, elements, received, own, element_bytes=size))


@price_of("c10d::alltoall_")
def all_to_all_lists(seen: Seen) -> tuple[Piece, ...]:
    """One tensor to every rank."""
    handed_in, handed_out = _metas(seen.arguments["input_tensors"]), _metas(seen.arguments["output_tensors"])
    group = seen.arguments["process_group"]
    own, size = handed_in[group.rank].num_elements, _element_bytes(handed_in)
    return _told(seen, ops.all_to_all(group.size, _elements(handed_in), _elements(handed_out), own, element_bytes=size))


@price_of("c10d::broadcast_", "_c10d_functional::broadcast")
def broadcast(seen: Seen) -> tuple[Piece, ...]:
    """One rank's tensors to every rank, around the ring."""
    buffers = _metas(seen.arguments.get("tensors") or seen.arguments["input"])
    group = seen.arguments.get("process_group") or seen.arguments["group_name"]
    root = int(seen.arguments["root_rank"] if "root_rank" in seen.arguments else seen.arguments["src"])
    is_last = group.rank == (root - 1) % group.size
    elements, size = _elements(buffers), _element_bytes(buffers)
    if is_last and group.size > 1:
        return _told(seen, _named("broadcast", group.size, ops.receive(elements, element_bytes=size)))
    return _told(seen, ops.broadcast(group.size, elements, element_bytes=size))


@price_of("c10d::reduce_")
def reduce(seen: Seen) -> tuple[Piece, ...]:
    """The sum to one rank."""
    buffers, group = seen.tensors("tensors"), seen.arguments["process_group"]
    elements, size = _elements(buffers), _element_bytes(buffers)
    if group.rank == seen.arguments["root_rank"]:
        return _told(seen, _named("reduce", group.size, ops.receive(elements, element_bytes=size)))
    return _told(seen, ops.reduce(group.size, elements, element_bytes=size))


@price_of("c10d::scatter_")
def scatter(seen: Seen) -> tuple[Piece, ...]:
    """One rank's chunks, one to each."""
    chunks, group = seen.tensors("output_tensors"), seen.arguments["process_group"]
    elements, size = _elements(chunks), _element_bytes(chunks)
    if group.rank == seen.arguments["root_rank"]:
        return _told(seen, ops.scatter(group.size, elements, element_bytes=size))
    return _told(seen, _named("scatter", group.size, ops.receive(elements, element_bytes=size)))


@price_of("c10d::gather_")
def gather(seen: Seen) -> tuple[Piece, ...]:
    """Every rank's chunk to one rank."""
    chunks, group = seen.tensors("input_tensors"), seen.arguments["process_group"]
    elements, size = _elements(chunks), _element_bytes(chunks)
    if group.rank == seen.arguments["root_rank"]:
        return _told(seen, _named("gather", group.size, ops.receive((group.size - 1) * elements, element_bytes=size)))
    return _told(seen, _named("gather", group.size, ops.send(elements, element_bytes=size)))


@price_of("c10d::send", "_c10d_functional::isend")
def send(seen: Seen) -> tuple[Piece, ...]:
    """To one other rank."""
    buffers = _metas(seen.arguments.get("tensors") or seen.arguments["tensor"])
    return _told(seen, ops.send(_elements(buffers), element_bytes=_element_bytes(buffers)))


@price_of("c10d::recv_", "c10d::recv_any_source_", "_c10d_functional::irecv")
def receive(seen: Seen) -> tuple[Piece, ...]:
    """From one other rank."""
    buffers = _metas(seen.arguments.get("tensors") or seen.arguments["tensor"])
    return _told(seen, ops.receive(_elements(buffers), element_bytes=_element_bytes(buffers)))


@price_of("c10d::barrier", "c10d::monitored_barrier_", "c10d::check_for_nan")
def nothing(_seen: Seen) -> tuple[Piece, ...]:
    """No data."""
    return ()


@price_of("fsdp::all_gather_copy_in")
def copied_in(seen: Seen) -> tuple[Piece, ...]:
    """This rank's parameters into its part of the buffer."""
    return _copied(_metas(seen.arguments["all_gather_inputs"]), _metas(seen.results[:1]))


@price_of("fsdp::split_with_sizes_copy")
def copied_out(seen: Seen) -> tuple[Piece, ...]:
    """What was gathered, parameter by parameter."""
    return _copied([seen.tensor("all_gather_output")], seen.tensors("out"))


@price_of("fsdp::chunk_cat")
def concatenated(seen: Seen) -> tuple[Piece, ...]:
    """Gradients into the buffer that is reduced, in its format."""
    return _copied(seen.tensors("tensors"), [seen.tensor("out")])


def _copied(read: list[TensorMeta], written: list[TensorMeta]) -> tuple[Piece, ...]:
    bytes_read, bytes_written = (sum(meta.num_bytes for meta in metas) for metas in (read, written))
    return moved(ops.copy(_elements(written)), bytes_read=bytes_read, bytes_written=bytes_written)


def _told(seen: Seen, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The pieces with what torch tells of overlap: whether the call returns before the collective has ended."""
    asynchronous = int(bool(seen.arguments.get("async_op", True)))
    return tuple(replace(piece, shape=(*piece.shape, ("asynchronous", asynchronous))) for piece in pieces)


def _named(op: str, group: int, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """One side of a collective that is a plain send or receive."""
    return tuple(replace(piece, op=op, shape=(("group", group), *piece.shape[1:])) for piece in pieces)


def _whole(amount: Any) -> Any:
    """The fraction as a whole number where it is one."""
    if not isinstance(amount, Fraction):
        return amount
    return amount.numerator if amount.denominator == 1 else float(amount)


def _size(seen: Seen) -> int:
    group = seen.arguments.get("process_group") or seen.arguments["group_name"]
    return int(group.size)


def _splits(seen: Seen) -> list[int]:
    value = seen.arguments.get("input_split_sizes")
    return [int(size[1] if isinstance(size, tuple) else size) for size in value[1:]] if value else []


def _metas(value: Any) -> list[TensorMeta]:
    """All tensors of an argument, lists of lists flattened."""
    if isinstance(value, TensorMeta):
        return [value]
    return [meta for item in value for meta in _metas(item)] if isinstance(value, (tuple, list)) else []


def _elements(metas: list[TensorMeta]) -> int:
    return sum(meta.num_elements for meta in metas)


def _element_bytes(metas: list[TensorMeta]) -> int:
    return metas[0].dtype.itemsize if metas else 1
