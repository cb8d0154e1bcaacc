"""A preparation that was killed goes on: what of it is safely on the disk, written down from time to time."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from torchledger.trainer import durable
from torchledger.trainer.tokenizer import Tokenizer, parse_tokenizer
from torchledger.trainer.tokenwriter import TokenFileWriter

__all__ = ["Journal", "Unfinished"]

NAME = ".prepare.unfinished.json"
INTERVAL_S = 10.0


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What is done: `num_groups` of pieces are encoded. The pairs are of training and validation."""

    inputs_hash: str
    tokenizer: str
    assumptions: tuple[str, ...]
    num_groups: int
    num_tokens: tuple[int, int]
    num_documents: tuple[int, int]
    num_bytes: tuple[int, int]

    @classmethod
    def read(cls, folder: Path, inputs_hash: str) -> Self | None:
        """What an earlier preparation of the same inputs in `folder` has done; nothing where there is none."""
        try:
            row: dict[str, Any] = json.loads((folder / NAME).read_text("utf-8"))
            values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in row.items()}
            found = cls(**values)
            parse_tokenizer(found.tokenizer)
        except (OSError, ValueError, TypeError, AttributeError):  # none, or damaged: all is done anew
            return None
        return found if found.inputs_hash == inputs_hash else None


class Journal:
    """Writes down how far a preparation is, every `INTERVAL_S` seconds, once its token files are synced to disk.

    Args:
        folder: of the preparation.
        inputs_hash: of all that its result depends on.
        tokenizer: what encodes.
        assumptions: what was decided on the way to the tokenizer.
    """

    def __init__(self, folder: Path, inputs_hash: str, tokenizer: Tokenizer, assumptions: tuple[str, ...]) -> None:
        self._path = folder / NAME
        self._fixed = (inputs_hash, tokenizer.to_json(), assumptions)
        self._last = time.monotonic()

    @property
    def is_begun(self) -> bool:
        """Whether there is anything to go on from."""
        return self._path.exists()

    def note(self, num_groups: int, writers: tuple[TokenFileWriter, TokenFileWriter], sizes: list[int]) -> None:
        """Write down that `num_groups` are done, if it is time to.

        Raises:
            OSError, TokenFileError: a full disk.
        """
        if time.monotonic() - self._last < INTERVAL_S:
            return
        for writer in writers:
            writer.sync()
        tokens = (writers[0].num_tokens, writers[1].num_tokens)
        documents = (writers[0].num_documents, writers[1].num_documents)
        done = Unfinished(*self._fixed, num_groups, tokens, documents, (sizes[0], sizes[1]))
        durable.write_text(self._path, json.dumps(asdict(done)))
        self._last = time.monotonic()

    def begin_anew(self) -> None:
        """Write down whose the folder is, and that nothing of it is to be kept: whatever happens, all is encoded again.

        Raises:
            OSError: a full disk.
        """
        durable.write_text(self._path, json.dumps(asdict(Unfinished(*self._fixed, 0, (0, 0), (0, 0), (0, 0)))))

    def close(self) -> None:
        """The preparation is done, or begins anew."""
        self._path.unlink(missing_ok=True)
