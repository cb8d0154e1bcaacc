"""Text, streamed: the sources in megabyte pieces cut between lines, each with its split and document's end."""

import codecs
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchledger.trainer.containers import BLOCK_BYTES, SourceError, blocks
from torchledger.trainer.records import records
from torchledger.trainer.sources import SourceFile, Sources
from torchledger.trainer.split import Split
from torchledger.trainer.tokenizer import END_OF_TEXT

__all__ = ["Piece", "pieces"]

LONGEST_LINE = 4 * BLOCK_BYTES  # a longer one is cut anywhere
LINE_SEARCH_BYTES = 1 << 16  # how far a slice's cut moves on to find a line's start


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text. `num_bytes` counts it in UTF-8, and the spelled-out end-of-text mark behind it.

    `read_bytes` is how far the sources are read with it, counted as `Sources.num_bytes` counts; where it is None, by
    `num_bytes`.
    """

    text: str
    num_bytes: int
    validation: bool
    ends_document: bool
    read_bytes: int | None = None


def pieces(sources: Sources, split: Split, text_field: str = "text") -> Iterator[Piece]:
    """All text of the sources in order, in bounded memory. Longer files are cut after a line's end, always alike.

    Each file is a document, and each record of a table; in a single text file each stretch between end-of-text marks
    is, and the marks themselves are left out.

    Args:
        sources: the files.
        split: which of their text is for validation.
        text_field: the field or column of a table that has its texts.

    Raises:
        SourceError: a file has gone or changed since it was hashed; a table that is damaged or has no such texts.
    """
    for file in sources.files:
        path = sources.root / file.name
        if file.format.is_table:
            yield from _table(path, file, split, text_field)
        elif split.by in {"file", "record"}:
            by_name = split.by == "file"
            validation = file.name in split.validation_files if by_name else split.validates_record(file.name, 0)
            for text in _texts(path, file):
                yield Piece(text, len(text.encode()), validation, ends_document=False)
            yield Piece("", 0, validation, ends_document=True)
        else:
            yield from _single(path, file, split)


def _table(path: Path, file: SourceFile, split: Split, text_field: str) -> Iterator[Piece]:
    """The pieces of a table's records; a long one is cut after lines, as files are."""
    read = 0
    for number, (text, share) in enumerate(records(path, file.format, text_field, file.sha256)):
        validation = split.validates_record(file.name, number)
        before, read = read, int(share * file.num_bytes)
        start = 0
        while len(text) - start > BLOCK_BYTES:
            end = text.rfind("\n", start, start + BLOCK_BYTES) + 1 or start + BLOCK_BYTES
            part = text[start:end]
            yield Piece(part, len(part.encode()), validation, ends_document=False, read_bytes=0)
            start = end
        part = text[start:]
        yield Piece(part, len(part.encode()), validation, ends_document=True, read_bytes=read - before)
    yield Piece("", 0, validation=False, ends_document=False, read_bytes=file.num_bytes - read)


def _single(path: Path, file: SourceFile, split: Split) -> Iterator[Piece]:
    """The pieces of an only file, split by document or by a cut."""
    document, position = 0, 0
    for text in _texts(path, file):
        parts = text.split(END_OF_TEXT)
        for i, part in enumerate(parts):
            ends = i + 1 < len(parts)
            if split.by == "document":
                num_bytes = len(part.encode()) + ends * len(END_OF_TEXT)
                yield Piece(part, num_bytes, split.validates_document(document), ends)
                position += num_bytes
            else:
                for piece in _cut(part, position, file.num_bytes, split.first_validation_byte, ends=ends):
                    yield piece
                    position += piece.num_bytes
            document += ends
    last = split.validates_document(document) if split.by == "document" else True
    yield Piece("", 0, last, ends_document=True)


def _cut(text: str, position: int, file_bytes: int, cut: int, *, ends: bool) -> Iterator[Piece]:
    """A text that begins at byte `position`, in two where the first byte for validation lies in it."""
    data, extra = text.encode(), ends * len(END_OF_TEXT)
    local = cut - position
    if local <= 0 or local >= len(data):
        yield Piece(text, len(data) + extra, local <= 0, ends)
        return
    newline = data.find(b"\n", local - 1, local + LINE_SEARCH_BYTES)
    at = newline + 1 if newline >= 0 and position + newline + 1 < file_bytes else local
    while at < len(data) and data[at] & 0xC0 == 0x80:  # within a character
        at += 1
    yield Piece(data[:at].decode(), at, validation=False, ends_document=True)
    yield Piece(data[at:].decode(), len(data) - at + extra, validation=True, ends_document=ends)


def _texts(path: Path, file: SourceFile) -> Iterator[str]:
    """The file's text in blocks that end with a line; proves at the end that it is what was hashed."""
    digest, decoder, held = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")(), ""
    try:
        for block in blocks(path, file.format, digest, BLOCK_BYTES):
            held += decoder.decode(block)
            end = held.rfind("\n") + 1
            if end == 0 and len(held) > LONGEST_LINE:
                end = _between_marks(held)
            if end:
                yield held[:end]
                held = held[end:]
        held += decoder.decode(b"", final=True)
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read {path} any more: {error}") from error
    if digest.hexdigest() != file.sha256:
        raise SourceError(f"{path} has changed while it was being prepared; start again")
    if held:
        yield held


def _between_marks(text: str) -> int:
    """The last place to cut a text so that no end-of-text mark is cut, not even one whose rest is still to come."""
    end = len(text) - len(END_OF_TEXT) + 1
    across = text.rfind(END_OF_TEXT, end - len(END_OF_TEXT) + 1)
    return end if across < 0 else across + len(END_OF_TEXT)
