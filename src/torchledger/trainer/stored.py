"""Tensors of a checkpoint on disk: pieces written to the files of a folder, and put together again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from torchledger.trainer.errors import CheckpointError
from torchledger.trainer.manifest import Manifest, StoredFile, StoredTensor, checksum, part_of
from torchledger.trainer.tensorfile import TensorFile, format_name, write_tensors

__all__ = ["Piece", "open_part", "read_piece", "read_whole", "write_parts"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor, or a rank's share of one.

    Attributes:
        tensor: what is written.
        offset: where in the whole tensor it begins.
        whole: sizes of the whole tensor.
    """

    tensor: Tensor
    offset: tuple[int, ...]
    whole: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """A tensor that is whole."""
        return cls(tensor, (0,) * tensor.ndim, tuple(tensor.shape))


def write_parts(folder: Path, pieces: Mapping[str, Piece], rank: int | None = None) -> dict[str, StoredFile]:
    """Write the pieces of one process, a file for each part, and sync them to disk.

    Args:
        folder: where; it is there.
        pieces: `<part>/<name>` -> piece.
        rank: which of several processes this is; nothing where there is one.

    Raises:
        OSError: a full disk, a folder that cannot be written to.
    """
    parts: dict[str, dict[str, Piece]] = {}
    for key, piece in pieces.items():
        part, _, name = key.partition("/")
        parts.setdefault(part, {})[name] = piece
    written = {}
    for part, named in parts.items():
        file_name = f"{part}.safetensors" if rank is None else f"{part}-rank-{rank:05d}.safetensors"
        sums = write_tensors(folder / file_name, {name: piece.tensor for name, piece in named.items()})
        about = {
            name: StoredTensor(
                tuple(each.tensor.shape), format_name(each.tensor.dtype), sums[name], each.offset, each.whole
            )
            for name, each in named.items()
        }
        written[file_name] = StoredFile((folder / file_name).stat().st_size, about)
    return written


def open_part(folder: Path, manifest: Manifest, part: str) -> dict[str, TensorFile]:
    """The files of a part (`weights`, `optimizer`, `extra`), ready to be read.

    Raises:
        CheckpointError: damaged.
    """
    return {name: _open(folder / name, file.crc32) for name, file in manifest.files.items() if part_of(name) == part}


def read_piece(file: TensorFile, name: str, stored: StoredTensor) -> Tensor:
    """One piece, on the CPU, with its checksum checked.

    Raises:
        CheckpointError: damaged.
    """
    tensor = file.read(name, stored.crc32)
    if tuple(tensor.shape) != stored.shape or format_name(tensor.dtype) != stored.dtype:
        found = f"{format_name(tensor.dtype)} {list(tensor.shape)}"
        raise CheckpointError(
            f"{file.path} is damaged: {name} is {found}, the manifest says {stored.dtype} {list(stored.shape)}"
        )
    return tensor


def read_whole(files: Mapping[str, TensorFile], name: str, pieces: Sequence[tuple[str, StoredTensor]]) -> Tensor:
    """A tensor put together from its pieces, on the CPU.

    Raises:
        CheckpointError: damaged.
    """
    file_name, first = pieces[0]
    tensor = read_piece(files[file_name], name, first)
    if len(pieces) == 1:
        return tensor
    whole = torch.empty(first.whole, dtype=tensor.dtype)
    for file_name, stored in pieces:
        place = tuple(slice(o, o + size) for o, size in zip(stored.offset, stored.shape, strict=True))
        whole[place] = read_piece(files[file_name], name, stored)
    return whole


def _open(path: Path, crc32: int | None) -> TensorFile:
    try:
        if crc32 is not None and checksum(path) != crc32:
            raise CheckpointError(f"{path} is damaged: its checksum does not match the manifest's")
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    return TensorFile.open(path)
