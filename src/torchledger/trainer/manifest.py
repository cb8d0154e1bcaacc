"""The page of a checkpoint that says what is in it: identity, position, and every tensor and file."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torchledger.trainer.errors import CheckpointError
from torchledger.trainer.identity import Identity
from torchledger.trainer.seeds import STREAMS

__all__ = ["MANIFEST_NAME", "Manifest", "StoredFile", "checksum"]

MANIFEST_NAME = "manifest.json"
SCHEMA = "torchledger.checkpoint/1"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of tensors.

    Attributes:
        num_bytes: its size.
        crc32: checksum of its content.
        tensors: name -> {"shape": [...], "dtype": "float32"}.
    """

    num_bytes: int
    crc32: int
    tensors: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint says of itself.

    Attributes:
        step: updates done, which is also the number of the next update and of the next batch: the whole position.
        identity: what determines the run.
        metrics: figures at this step (`loss`, `validation_loss`).
        files: name -> file.
    """

    step: int
    identity: Identity
    metrics: Mapping[str, Any]
    files: Mapping[str, StoredFile]

    def to_json(self) -> str:
        """The content of the manifest's file."""
        recipe = self.identity.recipe
        row = {
            "schema": SCHEMA,
            "step": self.step,
            "num_steps": recipe.num_steps,
            "next_batch": self.step,
            "tokens_seen": self.step * recipe.tokens_per_step,
            "streams": {
                "seed": recipe.seed,
                **{name: f"a function of seed and {what}" for name, what in STREAMS.items()},
            },
            **self.identity.to_dict(),
            "metrics": dict(self.metrics),
            "files": {
                name: {"num_bytes": file.num_bytes, "crc32": file.crc32, "tensors": file.tensors}
                for name, file in self.files.items()
            },
        }
        return json.dumps(row, indent=1) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of the checkpoint in `folder` and check that its files are there in full length.

        Raises:
            CheckpointError: no checkpoint, half of one, or one of another version: the message says which.
        """
        path = folder / MANIFEST_NAME
        try:
            row = json.loads(path.read_text("utf-8"))
            manifest = cls._from_row(row)
        except (FileNotFoundError, NotADirectoryError):
            raise CheckpointError(f"no checkpoint at {folder} ({MANIFEST_NAME} is missing)") from None
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path} is damaged or of another version: {error}") from error
        _check_sizes(folder, manifest.files)
        return manifest

    @classmethod
    def _from_row(cls, row: Mapping[str, Any]) -> Self:
        if row["schema"] != SCHEMA:
            raise ValueError(f"schema {row['schema']!r}; this torchledger reads {SCHEMA!r}")
        files = {
            name: StoredFile(int(file["num_bytes"]), int(file["crc32"]), file["tensors"])
            for name, file in row["files"].items()
        }
        return cls(int(row["step"]), Identity.from_dict(row), row["metrics"], files)


def checksum(path: Path) -> int:
    """CRC-32 of a file, read in bounded memory."""
    crc = 0
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 22):
            crc = zlib.crc32(chunk, crc)
    return crc


def _check_sizes(folder: Path, files: Mapping[str, StoredFile]) -> None:
    for name, file in files.items():
        size = (folder / name).stat().st_size if (folder / name).is_file() else None
        if size != file.num_bytes:
            found = "is missing" if size is None else f"has {size:,} bytes instead of {file.num_bytes:,}"
            raise CheckpointError(f"the checkpoint {folder} is not whole: {name} {found}")
