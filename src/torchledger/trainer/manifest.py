"""The page of a checkpoint that says what is in it: identity, position, and every tensor and file."""

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from torchledger.trainer.errors import CheckpointError
from torchledger.trainer.identity import Identity
from torchledger.trainer.sealed import seal, seal_fault
from torchledger.trainer.seeds import STREAMS

__all__ = ["MANIFEST_NAME", "Manifest", "StoredFile", "StoredTensor", "checksum", "part_of"]

MANIFEST_NAME = "manifest.json"
SCHEMA = "torchledger.checkpoint/3"
#: /1: one process; checksums of whole files in place of single tensors. /2: no checksum of the page itself.
OLD_SCHEMAS = frozenset({"torchledger.checkpoint/1", "torchledger.checkpoint/2"})


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file, or one rank's share of it.

    Attributes:
        shape: sizes of what is in the file.
        dtype: `float32`.
        crc32: checksum of its bytes; nothing in checkpoints of schema /1.
        offset: where in the whole tensor it begins.
        whole: sizes of the whole tensor.
    """

    shape: tuple[int, ...]
    dtype: str
    crc32: int | None
    offset: tuple[int, ...]
    whole: tuple[int, ...]

    def to_row(self) -> dict[str, Any]:
        """For JSON; offset and whole are left out where they say nothing new."""
        row: dict[str, Any] = {"shape": list(self.shape), "dtype": self.dtype, "crc32": self.crc32}
        return row if self.shape == self.whole else {**row, "offset": list(self.offset), "whole": list(self.whole)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read back what `to_row` wrote; rows of schema /1 too."""
        shape = tuple(map(int, row["shape"]))
        offset = tuple(map(int, row.get("offset", [0] * len(shape))))
        return cls(shape, row["dtype"], row.get("crc32"), offset, tuple(map(int, row.get("whole", shape))))


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of tensors.

    Attributes:
        num_bytes: its size.
        tensors: by name.
        crc32: checksum of the whole file, in checkpoints of schema /1; nothing where each tensor has its own.
    """

    num_bytes: int
    tensors: Mapping[str, StoredTensor]
    crc32: int | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint says of itself.

    Attributes:
        step: updates done, which is also the number of the next update and of the next batch: the whole position.
        identity: what determines the run.
        metrics: figures at this step (`loss`, `validation_loss`).
        files: name -> file. `weights.safetensors` is of the part `weights`; where several ranks wrote, each has a file
            of each part (`weights-rank-00001.safetensors`).
        permanent: whether no later checkpoint deletes it.
        check_loss: what `selfcheck` gave with these weights; nothing where it was not asked.
    """

    step: int
    identity: Identity
    metrics: Mapping[str, Any]
    files: Mapping[str, StoredFile] = field(default_factory=dict)
    permanent: bool = False
    check_loss: float | None = None

    def pieces(self, part: str) -> dict[str, list[tuple[str, StoredTensor]]]:
        """Where each tensor of a part (`weights`, `optimizer`, `extra`) is: name -> [(file, piece)]."""
        found: dict[str, list[tuple[str, StoredTensor]]] = {}
        for file_name, file in self.files.items():
            if part_of(file_name) == part:
                for name, tensor in file.tensors.items():
                    found.setdefault(name, []).append((file_name, tensor))
        return found

    def with_files(self, files: Mapping[str, StoredFile]) -> "Manifest":
        """The same with its files filled in."""
        return replace(self, files=dict(files))

    def to_json(self) -> str:
        """The content of the manifest's file: a line for each thing it says, one for each file, one for its sum."""
        recipe = self.identity.recipe
        row = {
            "schema": SCHEMA,
            "step": self.step,
            "permanent": self.permanent,
            "num_steps": recipe.num_steps,
            "next_batch": self.step,
            "tokens_seen": self.step * recipe.tokens_per_step,
            "streams": {
                "seed": recipe.seed,
                **{name: f"a function of seed and {what}" for name, what in STREAMS.items()},
            },
            **self.identity.to_dict(),
            "metrics": dict(self.metrics),
            "check_loss": self.check_loss,
        }
        files = ",\n".join(f"  {json.dumps(name)}: {_file_json(file)}" for name, file in self.files.items())
        return seal(json.dumps(row, indent=1).removesuffix("\n}") + ',\n "files": {\n' + files + "\n }\n}")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of the checkpoint in `folder` and check that its files are there in full length.

        Raises:
            CheckpointError: no checkpoint, half of one, or one of another version: the message says which.
        """
        path = folder / MANIFEST_NAME
        try:
            content = path.read_bytes()
            row = json.loads(content.decode("utf-8"))
            manifest = cls._from_row(row)
            if fault := seal_fault(content, is_sealed=row["schema"] not in OLD_SCHEMAS):
                raise CheckpointError(f"{path} is damaged: {fault}")
        except (FileNotFoundError, NotADirectoryError):
            raise CheckpointError(f"no checkpoint at {folder} ({MANIFEST_NAME} is missing)") from None
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"{path} is damaged or of another version: {error}") from error
        _check_whole(folder, manifest)
        return manifest

    @classmethod
    def _from_row(cls, row: Mapping[str, Any]) -> Self:
        if row["schema"] not in {SCHEMA, *OLD_SCHEMAS}:
            known = ", ".join(sorted({SCHEMA, *OLD_SCHEMAS}))
            raise ValueError(f"schema {row['schema']!r}; this torchledger reads {known}")
        files = {
            name: StoredFile(
                int(file["num_bytes"]),
                {tensor: StoredTensor.from_row(each) for tensor, each in file["tensors"].items()},
                file.get("crc32"),
            )
            for name, file in row["files"].items()
        }
        identity = Identity.from_dict(row)
        check = row.get("check_loss")
        return cls(int(row["step"]), identity, row["metrics"], files, bool(row.get("permanent")), check)


def part_of(file_name: str) -> str:
    """Which part of the state a file has: `weights`, `optimizer` or `extra`."""
    return file_name.removesuffix(".safetensors").partition("-rank-")[0]


def checksum(path: Path) -> int:
    """CRC-32 of a file, read in bounded memory."""
    crc = 0
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 22):
            crc = zlib.crc32(chunk, crc)
    return crc


def _file_json(file: StoredFile) -> str:
    row: dict[str, Any] = {"num_bytes": file.num_bytes}
    if file.crc32 is not None:
        row["crc32"] = file.crc32
    return json.dumps({**row, "tensors": {name: tensor.to_row() for name, tensor in file.tensors.items()}})


def _check_whole(folder: Path, manifest: Manifest) -> None:
    """Every file in full length, and of every tensor all pieces."""
    for name, file in manifest.files.items():
        size = (folder / name).stat().st_size if (folder / name).is_file() else None
        if size != file.num_bytes:
            found = "is missing" if size is None else f"has {size:,} bytes instead of {file.num_bytes:,}"
            raise CheckpointError(f"the checkpoint {folder} is not whole: {name} {found}")
    for part in dict.fromkeys(map(part_of, manifest.files)):
        for name, pieces in manifest.pieces(part).items():
            stored, whole = sum(math.prod(piece.shape) for _, piece in pieces), math.prod(pieces[0][1].whole)
            if stored != whole:
                raise CheckpointError(
                    f"the checkpoint {folder} is not whole: of {name} it has {stored:,} of {whole:,} numbers"
                )
