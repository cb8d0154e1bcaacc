"""Which text goes in: the standard library of this Python, a folder or a file; every file hashed, every skip said."""

import codecs
import hashlib
import json
import os
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torchledger.trainer.containers import (
    BLOCK_BYTES,
    PLAIN,
    FileFormat,
    SourceError,
    blocks,
    format_of,
    require_library,
)
from torchledger.trainer.prepared import SUMMARY_NAME, TRAIN_NAME
from torchledger.trainer.records import sha256_of
from torchledger.trainer.tokenizer import END_OF_TEXT

__all__ = ["Progress", "SkippedFile", "SourceError", "SourceFile", "Sources", "find_sources"]

Progress = Callable[[int, int, str], None]  # done, total (both in bytes of text), what is being done

# Other people's code, compiled code, and tests: some systems package the tests apart, and the same data should come out
# with and without them (they are also half test fixtures, in odd encodings and with syntax errors on purpose).
_STDLIB_LEFT_OUT = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"})
_FOLDERS_LEFT_OUT = frozenset({"__pycache__", "node_modules"})  # hidden ones as well


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of text: its name within the source (with `/`), and how many end-of-text marks are spelled out in it.

    `num_bytes` is of text, decompressed; of a table of records, it is the file's. `sha256` is of the file as it stands.
    """

    name: str
    num_bytes: int
    sha256: str
    num_separators: int = 0
    format: FileFormat = PLAIN


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that was left out, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of a source, sorted by name. `root` is the folder that names are relative to."""

    kind: Literal["stdlib", "folder", "file"]
    root: Path
    files: tuple[SourceFile, ...]
    skipped: tuple[SkippedFile, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of text in all files."""
        return sum(file.num_bytes for file in self.files)

    @property
    def sha256(self) -> str:
        """One hash of all names and contents."""
        lines = "".join(f"{file.sha256}  {file.name}\n" for file in self.files)
        return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def find_sources(source: Path | str, *, exclude: Path | None = None, progress: Progress | None = None) -> Sources:
    """Find and hash the text of a source.

    Text is UTF-8 without NUL bytes; empty, binary and unreadable files are listed as skipped. Symbolic links to files
    are followed, to folders not. What an earlier preparation wrote into the source is no text of it. A folder with a
    single text file counts as that file. Compressed text, lines of JSON and tables are known by their names (see
    `containers`); a folder that the `datasets` library saved is its tables.

    Args:
        source: `stdlib` (the `.py` files of this Python's standard library; installed packages and tests left out), a
            folder (every text file in it; hidden files and folders, `__pycache__`, `node_modules` and folders that
            `prepare` wrote left out), or a file.
        exclude: a folder to leave out (where the result will stand).
        progress: told how much has been read.

    Raises:
        SourceError: nothing there, or no text in it; a library is missing; a saved `DatasetDict`, of which one part
            must be chosen; compressed text that is damaged.
    """
    if source == "stdlib":
        root = Path(sysconfig.get_paths()["stdlib"])
        kind: Literal["stdlib", "folder", "file"] = "stdlib"
        paths = list(_walk(root, _STDLIB_LEFT_OUT, None, suffix=".py"))
    elif Path(source).is_dir():
        root, kind = Path(source), "folder"
        paths = _saved_tables(root) or list(_walk(root, _FOLDERS_LEFT_OUT, exclude, suffix=""))
    elif Path(source).exists():
        root, kind, paths = Path(source).parent, "file", [Path(source)]
    else:
        raise SourceError(f"no file or folder at {source}; give a text file, a folder of text, or `stdlib`")
    files, skipped = _inspect(root, paths, progress)
    if not files:
        why = f": {skipped[0].name} is {skipped[0].reason}" if skipped else ""
        raise SourceError(f"no text found in {source} ({len(skipped)} files skipped{why})")
    if kind == "folder" and len(files) == 1:
        kind = "file"
    return Sources(kind, root, tuple(files), tuple(skipped))


def _walk(root: Path, left_out: frozenset[str], exclude: Path | None, *, suffix: str) -> Iterator[Path]:
    hidden_exclude = exclude.resolve() if exclude is not None else None
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in left_out
            and not name.startswith(".")
            and (Path(folder) / name).resolve() != hidden_exclude
            and not _is_prepared(Path(folder) / name)
        )
        yield from (Path(folder) / name for name in names if name.endswith(suffix) and not name.startswith("."))


def _is_prepared(folder: Path) -> bool:
    """Whether `prepare` wrote the folder: what it made of the same text must not become text again."""
    return (folder / SUMMARY_NAME).is_file() and (folder / TRAIN_NAME).is_file()


def _saved_tables(root: Path) -> list[Path]:
    """The tables of a data set that `datasets` saved to this folder; none where it is no such folder."""
    parts, state = root / "dataset_dict.json", root / "state.json"
    try:
        if parts.is_file():
            names = json.loads(parts.read_text("utf-8"))["splits"]
            raise SourceError(f"{root} has several parts, some not for training: {', '.join(names)}; give one of them")
        if not state.is_file() or not (root / "dataset_info.json").is_file():
            return []
        return [root / row["filename"] for row in json.loads(state.read_text("utf-8"))["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{root} looks like a saved data set, but is damaged: {error!r}") from error


def _inspect(root: Path, paths: list[Path], progress: Progress | None) -> tuple[list[SourceFile], list[SkippedFile]]:
    named = sorted((path.relative_to(root).as_posix(), path) for path in paths)
    sizes = [_size(path) for _, path in named]
    files, skipped, done, total = [], [], 0, sum(sizes)
    for (name, path), size in zip(named, sizes, strict=True):
        found = _inspect_file(name, path)
        if isinstance(found, SourceFile):
            files.append(found)
        else:
            skipped.append(found)
        done += size
        if progress is not None:
            progress(done, total, "reading")
    return files, skipped


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # a dangling link; said when its turn comes
        return 0


def _inspect_file(name: str, path: Path) -> SourceFile | SkippedFile:
    form = format_of(name)
    try:
        if not path.is_file():
            return SkippedFile(name, "not a regular file")
        require_library(name, form)
        if form.is_table:
            size = path.stat().st_size
            return SourceFile(name, size, sha256_of(path), 0, form) if size else SkippedFile(name, "empty")
        return _inspect_text(name, path, form)
    except UnicodeDecodeError:
        return SkippedFile(name, "not UTF-8")
    except OSError as error:
        return SkippedFile(name, f"unreadable ({error.strerror})")


def _inspect_text(name: str, path: Path, form: FileFormat) -> SourceFile | SkippedFile:
    digest, decoder, size, separators, tail = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")(), 0, 0, b""
    mark = END_OF_TEXT.encode()
    for block in blocks(path, form, digest, BLOCK_BYTES):
        if b"\0" in block:
            return SkippedFile(name, "binary (it has NUL bytes)")
        decoder.decode(block)
        size += len(block)
        separators += (tail + block).count(mark)
        tail = (tail + block)[1 - len(mark) :]  # one byte short of a mark: none is missed or counted twice
    decoder.decode(b"", final=True)
    return SourceFile(name, size, digest.hexdigest(), separators, form) if size else SkippedFile(name, "empty")
