"""Documents of a table: each line of JSON, each row of a Parquet or Arrow file, in order and in bounded memory."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchledger.trainer.containers import BLOCK_BYTES, FileFormat, SourceError, blocks

__all__ = ["records", "sha256_of"]

LONGEST_LINE_BYTES = 1 << 28  # a line of JSON is held whole
ROWS = 256  # of a Parquet file at a time


def records(path: Path, form: FileFormat, field: str, sha256: str) -> Iterator[tuple[str, float]]:
    """The texts of a table's records, each with the share of the file that is read by then.

    A record whose text is null has none: an empty text.

    Args:
        path: the file.
        form: its format.
        field: the field or column that has the text.
        sha256: what the file's bytes were hashed to; proved when it is read through.

    Raises:
        SourceError: a damaged file; a record without the field, or with something else than text in it, by its
            number; a file that has gone or changed.
    """
    digest = hashlib.sha256()
    try:
        if form.kind == "jsonl":
            yield from _json_lines(path, form, field, digest)
            found = digest.hexdigest()
        else:
            yield from _rows(path, form, field)
            found = sha256_of(path)
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read {path} any more: {error}") from error
    if found != sha256:
        raise SourceError(f"{path} has changed while it was being prepared; start again")


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


class _Counting:
    """A hash that also counts what it was fed, so that a bar can be drawn for compressed data."""

    def __init__(self, digest: Any) -> None:
        self._digest = digest
        self.num_bytes = 0

    def update(self, data: bytes) -> None:
        self._digest.update(data)
        self.num_bytes += len(data)


def _json_lines(path: Path, form: FileFormat, field: str, digest: Any) -> Iterator[tuple[str, float]]:
    size, counting = max(path.stat().st_size, 1), _Counting(digest)
    for number, line in enumerate(_lines(path, form, counting), 1):
        if line.strip():
            yield _text_of(line, field, f"{path}, line {number:,}"), counting.num_bytes / size


def _lines(path: Path, form: FileFormat, counting: _Counting) -> Iterator[bytes]:
    held: list[bytes] = []  # of the line at hand: joined once, however many blocks it spans
    held_bytes = 0
    for block in blocks(path, form, counting):
        first, *rest = block.split(b"\n")
        held.append(first)
        held_bytes += len(first)
        if held_bytes > LONGEST_LINE_BYTES:
            raise SourceError(f"{path} has a line of more than {LONGEST_LINE_BYTES:,} bytes; is it lines of JSON?")
        if rest:
            yield b"".join(held)
            yield from rest[:-1]
            held, held_bytes = [rest[-1]], len(rest[-1])
    if held:
        yield b"".join(held)


def _text_of(line: bytes, field: str, where: str) -> str:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SourceError(f"{where} is not UTF-8 (byte {error.start:,})") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{where} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise SourceError(f"{where} is not an object with a field {field!r}")
    if field not in row:
        names = ", ".join(list(row)[:20]) or "none"
        raise SourceError(f"{where} has no field {field!r}; its fields: {names} (--text-field names another)")
    text = row[field]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise SourceError(f"{where}: field {field!r} is no text but {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can spell and UTF-8 cannot
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _rows(path: Path, form: FileFormat, field: str) -> Iterator[tuple[str, float]]:
    import pyarrow as pa

    done = 0
    try:
        for column, num_rows in _columns(path, form, field):
            for text in column.to_pylist():
                done += 1
                if text is not None and not isinstance(text, str):
                    raise SourceError(f"{path}, row {done:,}: column {field!r} is no text but {type(text).__name__}")
                yield text or "", done / num_rows if num_rows else 0.0
    except pa.ArrowException as error:
        raise SourceError(f"{path} is damaged, or no {form.kind} file: {error}") from error


def _columns(path: Path, form: FileFormat, field: str) -> Iterator[tuple[Any, int]]:
    """Columns of texts, a few rows at a time, with the number of rows in all where the file says it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if form.kind == "parquet":
        with pq.ParquetFile(path, pre_buffer=False) as file:
            _require_column(path, file.schema_arrow, field)
            for batch in file.iter_batches(ROWS, columns=[field]):
                yield batch.column(0), file.metadata.num_rows
        return
    with pa.OSFile(str(path)) as source, _arrow_reader(source) as reader:
        _require_column(path, reader.schema, field)
        is_file = hasattr(reader, "num_record_batches")
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else reader
        for batch in batches:
            yield batch.column(reader.schema.get_field_index(field)), 0


def _arrow_reader(source: Any) -> Any:
    """Arrow has two formats under one suffix; `datasets` writes streams, others write files, which have a magic."""
    import pyarrow as pa

    magic = source.read(6)
    source.seek(0)
    return pa.ipc.open_file(source) if magic == b"ARROW1" else pa.ipc.open_stream(source)


def _require_column(path: Path, schema: Any, field: str) -> None:
    import pyarrow as pa

    if field not in schema.names:
        names = ", ".join(schema.names[:20])
        raise SourceError(f"{path} has no column {field!r}; its columns: {names} (--text-field names another)")
    kind = schema.field(field).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise SourceError(f"{path}: column {field!r} is no text but {kind}")
