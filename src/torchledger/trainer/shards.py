"""Checkpoints of many ranks, planned by torch.distributed.checkpoint: which rank writes and reads which piece.

DCP knows the layout of every DTensor (FSDP2, HSDP, tensor parallel and their products), writes what is the same on
several ranks once, spread over them, and finds the pieces that a rank of another layout needs. The files are our own:
its file format is a pickle, which runs code when it is read.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.distributed.tensor import DTensor, Replicate
from torch.futures import Future

from torchledger.trainer import checkpoint
from torchledger.trainer.durable import partial_path
from torchledger.trainer.errors import CheckpointError
from torchledger.trainer.manifest import Manifest, StoredFile, StoredTensor, part_of
from torchledger.trainer.stored import Piece, open_part, read_piece, write_parts
from torchledger.trainer.tensorfile import TensorFile

__all__ = ["ShardReader", "ShardWriter", "blank", "load_shards", "planner", "save_failure", "save_shards"]


class ShardWriter(StorageWriter):
    """Writes a rank's pieces; rank 0 makes the folder, writes the manifest and puts it in place.

    Args:
        folder: of the checkpoints.
        manifest: what it is; `files` is filled in.
        keep: how many checkpoints stay.
    """

    def __init__(self, folder: Path, manifest: Manifest, keep: int) -> None:
        self._target = folder / f"step-{manifest.step:08d}"
        self._manifest, self._keep = manifest, keep
        self._rank = 0

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing: a writer writes one checkpoint."""

    def set_up_storage_writer(self, is_coordinator: bool, *_args: Any, rank: int = 0, **kwargs: Any) -> None:
        """Learn which rank this is, which DCP tells to whoever has a parameter called `kwargs`."""
        assert is_coordinator == (rank == 0), kwargs
        self._rank = rank

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Nothing to add."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """On rank 0, before any rank has its plan: the folder to write in."""
        checkpoint.begin(self._target)
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> "Future[list[WriteResult]]":
        """Write this rank's pieces; an empty share of a tensor is none."""
        pieces: dict[str, Piece] = {}
        for item in plan.items:
            tensor = planner.resolve_data(item)
            assert isinstance(tensor, Tensor)
            if tensor.numel():
                assert item.index.fqn not in pieces
                pieces[item.index.fqn] = _piece(item, tensor)
        files = write_parts(partial_path(self._target), pieces, self._rank)
        num_bytes = sum(file.num_bytes for file in files.values())
        return _done([WriteResult(MetadataIndex(f"rank {self._rank}"), num_bytes, files)])

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On rank 0, when all have written: the manifest, the name, and the old ones go."""
        assert metadata is not None  # DCP's page; ours has checksums too
        files: dict[str, StoredFile] = {}
        for written in results:
            for result in written:
                files |= result.storage_data
        ordered = {name: files[name] for name in sorted(files)}
        checkpoint.finish(partial_path(self._target), self._target, self._manifest.with_files(ordered))
        checkpoint.prune(self._target.parent, self._keep)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:  # noqa: ARG003  # DCP's interface
        """Never chosen by a path alone."""
        return False


class ShardReader(StorageReader):
    """Reads the pieces that this rank needs, from a checkpoint of any number of ranks.

    Args:
        folder: of the checkpoint.
        manifest: of the checkpoint.
        parts: what is read of it (`weights`, `optimizer`).
    """

    def __init__(self, folder: Path, manifest: Manifest, parts: frozenset[str]) -> None:
        self._folder, self._manifest, self._parts = folder, manifest, parts

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing: a reader reads one checkpoint."""

    def read_metadata(self, *_args: Any, **_kwargs: Any) -> Metadata:
        """The manifest in DCP's words."""
        about: dict[str, Any] = {}
        places: dict[MetadataIndex, tuple[str, str, StoredTensor]] = {}
        for part in self._parts:
            for name, pieces in self._manifest.pieces(part).items():
                key, first = f"{part}/{name}", pieces[0][1]
                chunks = [ChunkStorageMetadata(torch.Size(p.offset), torch.Size(p.shape)) for _, p in pieces]
                properties = TensorProperties(dtype=getattr(torch, first.dtype))
                about[key] = TensorStorageMetadata(properties, torch.Size(first.whole), chunks)
                for file_name, piece in pieces:
                    places[MetadataIndex(key, torch.Size(piece.offset))] = (file_name, name, piece)
        return Metadata(about, storage_data=places)

    def set_up_storage_reader(self, metadata: Metadata, *_args: Any, **_kwargs: Any) -> None:
        """Keep where each piece is."""
        self._places = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Nothing to add."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Nothing to add."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> "Future[None]":
        """Read this rank's pieces one after the other; each is read whole, so that its checksum can be."""
        files: dict[str, TensorFile] = {}
        for item in plan.items:
            file_name, name, stored = self._places[item.storage_index]
            if file_name not in files:
                files |= open_part(self._folder, self._manifest, part_of(file_name))
            tensor = read_piece(files[file_name], name, stored)
            for dimension, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                tensor = tensor.narrow(dimension, start, length)
            target = planner.resolve_tensor(item).detach()
            target.copy_(tensor)
            planner.commit_tensor(item, target)
        return _done(None)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:  # noqa: ARG003  # DCP's interface
        """Never chosen by a path alone."""
        return False


def planner() -> SavePlanner:
    """DCP's own plan of who writes what; names are flat already."""
    return DefaultSavePlanner(flatten_state_dict=False)


def save_shards(folder: Path, state: dict[str, Tensor], manifest: Manifest, keep: int, group: ProcessGroup) -> None:
    """Save together; `checkpoint.write_checkpoint` says what.

    Raises:
        CheckpointError: on every rank, whichever failed.
    """
    try:
        save(state, storage_writer=ShardWriter(folder, manifest, keep), planner=planner(), process_group=group)
    except CheckpointException as error:
        raise save_failure(folder, manifest, error, group) from error


def save_failure(folder: Path, manifest: Manifest, error: CheckpointException, group: ProcessGroup) -> CheckpointError:
    """Why the ranks could not save, in our words; rank 0 clears what there is of it."""
    rank, reason = _first(error)
    target = folder / f"step-{manifest.step:08d}"
    told = OSError(f"rank {rank}: {getattr(reason, 'strerror', None) or reason}")
    if group.rank() == 0:
        return checkpoint.abandon(target, told)
    return CheckpointError(f"cannot save {target}: {told}")


def load_shards(path: Path, manifest: Manifest, state: dict[str, Tensor], group: ProcessGroup) -> None:
    """Fill the tensors of `state`, whole ones or DTensors, with those of the checkpoint at `path`.

    Raises:
        CheckpointError: on every rank, whichever failed.
    """
    reader = ShardReader(path, manifest, frozenset(key.partition("/")[0] for key in state))
    load_planner = DefaultLoadPlanner(flatten_state_dict=False)
    try:
        load(state, storage_reader=reader, planner=load_planner, process_group=group)
    except CheckpointException as error:
        _, reason = _first(error)
        raise CheckpointError(str(reason)) from error


def blank(stored: StoredTensor, parameter: Tensor, like: Tensor | None = None) -> Tensor:
    """An empty tensor for a state of `parameter`: laid out as the parameter where it is as large, else whole.

    Args:
        stored: what will be read into it.
        parameter: whose state it is.
        like: what shows another layout, for instance mean squares of a matrix's rows.
    """
    dtype: torch.dtype = getattr(torch, stored.dtype)
    if isinstance(like, DTensor) and stored.whole == tuple(like.shape):
        return torch.empty_like(like, dtype=dtype)
    if not isinstance(parameter, DTensor) or not stored.whole:
        return torch.empty(stored.whole, dtype=dtype)
    if stored.whole == tuple(parameter.shape):
        return torch.empty_like(parameter.detach(), dtype=dtype)
    mesh = parameter.device_mesh
    local = torch.empty(stored.whole, dtype=dtype, device=parameter.device)
    return DTensor.from_local(local, mesh, [Replicate()] * mesh.ndim, run_check=False)


def _piece(item: WriteItem, tensor: Tensor) -> Piece:
    assert item.tensor_data is not None
    return Piece(tensor, tuple(item.tensor_data.chunk.offsets), tuple(item.tensor_data.size))


def _first(error: CheckpointException) -> tuple[int, BaseException]:
    rank = min(error.failures)
    return rank, error.failures[rank][0]


def _done(value: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(value)
    return future
