"""Files that hold text: plain, lines of JSON, Parquet or Arrow tables; as they are, or in gzip or zstd.

::

    .txt .py ...            text: one document, or as many as end-of-text marks make of it
    .jsonl .ndjson          a document a line, each an object whose field `text` is wanted
    .json.gz .json.zst      the same: C4 and Dolma call them so
    .parquet                a document a row, of the column `text`
    .arrow                  the same, as the `datasets` library saves them to disk
    *.gz *.zst              any of the first two, compressed
"""

import importlib.util
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

__all__ = ["BLOCK_BYTES", "PLAIN", "FileFormat", "SourceError", "blocks", "format_of", "require_library"]

BLOCK_BYTES = 1 << 20
COMPRESSED_BLOCK_BYTES = 1 << 16  # little at a time: it may grow a thousandfold

_COMPRESSIONS: dict[str, Literal["gzip", "zstd"]] = {".gz": "gzip", ".zst": "zstd"}
_LIBRARIES = {"zstd": "zstandard", "parquet": "pyarrow", "arrow": "pyarrow"}


class SourceError(ValueError):
    """Text that cannot be found or read; the message says which."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """What a file is, by its name; `is_table` where one file has many documents, each a record."""

    kind: Literal["text", "jsonl", "parquet", "arrow"] = "text"
    compression: Literal["none", "gzip", "zstd"] = "none"

    @property
    def is_table(self) -> bool:
        """Whether each of many records is a document."""
        return self.kind != "text"


PLAIN = FileFormat()


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def format_of(name: str) -> FileFormat:
    """The format that a file's name says.

    >>> format_of("c4-train.00000-of-01024.json.gz")
    FileFormat(kind='jsonl', compression='gzip')
    """
    path = Path(name.lower())
    compression = _COMPRESSIONS.get(path.suffix)
    inner = path.with_suffix("").suffix if compression else path.suffix
    if inner in {".jsonl", ".ndjson"} or (compression and inner == ".json"):
        return FileFormat("jsonl", compression or "none")
    if not compression and inner in {".parquet", ".arrow"}:
        return FileFormat("parquet" if inner == ".parquet" else "arrow")
    return FileFormat("text", compression or "none")


def require_library(name: str, form: FileFormat) -> None:
    """Refuse a file that needs a library which is not installed.

    Raises:
        SourceError: naming the file, the library, and how to get it.
    """
    library = _LIBRARIES.get(form.compression) or _LIBRARIES.get(form.kind)
    if library is not None and importlib.util.find_spec(library) is None:
        raise SourceError(f"{name} needs the {library} library: pip install 'torchledger[data]'")


def blocks(path: Path, form: FileFormat, digest: Any = None, size: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The file's bytes, decompressed, `size` at a time (the last block may be shorter), compressed or not.

    Args:
        path: the file.
        form: its format; tables of Parquet and Arrow are not read this way.
        digest: a hash that is fed the bytes as they stand on disk.
        size: bytes of a block.

    Raises:
        SourceError: compressed data that is damaged or ends too early.
        OSError: the file cannot be read.
    """
    raw_size = size if form.compression == "none" else COMPRESSED_BLOCK_BYTES
    with path.open("rb") as stream:
        raw = _hashed(iter(lambda: stream.read(raw_size), b""), digest)
        if form.compression == "none":
            yield from raw
        elif form.compression == "gzip":
            yield from _cut(_decompressed(path, raw, lambda: zlib.decompressobj(wbits=31), padding=b"\0"), size)
        else:
            import zstandard

            yield from _cut(_decompressed(path, raw, zstandard.ZstdDecompressor().decompressobj, padding=b""), size)


def _cut(parts: Iterator[bytes], size: int) -> Iterator[bytes]:
    held = bytearray()
    for part in parts:
        held += part
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    if held:
        yield bytes(held)


def _hashed(raw: Iterator[bytes], digest: Any) -> Iterator[bytes]:
    for block in raw:
        if digest is not None:
            digest.update(block)
        yield block


def _decompressed(
    path: Path, raw: Iterator[bytes], new: Callable[[], _Decompressor], *, padding: bytes
) -> Iterator[bytes]:
    """Frames (members) one after another; zeros behind the last are gzip's padding."""
    current: _Decompressor | None = None
    try:
        for block in raw:
            left = block
            while left:
                if current is None:
                    left = left.lstrip(padding) if padding else left
                    if not left:
                        break
                    current = new()
                if text := current.decompress(left):
                    yield text
                left, current = (current.unused_data, None) if current.eof else (b"", current)
    except Exception as error:
        if type(error).__module__.partition(".")[0] in {"zlib", "zstd", "zstandard"}:
            raise SourceError(f"{path} is damaged: {error}") from error
        raise
    if current is not None:
        raise SourceError(f"{path} is cut short: its compressed data has no end")
