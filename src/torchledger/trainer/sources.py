"""Which text goes in: the standard library of this Python, a folder or a file; every file hashed, every skip said."""

import codecs
import hashlib
import os
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torchledger.trainer.tokenizer import END_OF_TEXT

__all__ = ["Progress", "SkippedFile", "SourceError", "SourceFile", "Sources", "find_sources"]

Progress = Callable[[int, int, str], None]  # done, total (both in bytes of text), what is being done

BLOCK_BYTES = 1 << 20

# Other people's code, compiled code, and tests: some systems package the tests apart, and the same data should come out
# with and without them (they are also half test fixtures, in odd encodings and with syntax errors on purpose).
_STDLIB_LEFT_OUT = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"})
_FOLDERS_LEFT_OUT = frozenset({"__pycache__", "node_modules"})  # hidden ones as well


class SourceError(ValueError):
    """Text that cannot be found or read; the message says which."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A text file: its name within the source (with `/`), and how many end-of-text marks are spelled out in it."""

    name: str
    num_bytes: int
    sha256: str
    num_separators: int = 0


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
    are followed, to folders not. A folder with a single text file counts as that file.

    Args:
        source: `stdlib` (the `.py` files of this Python's standard library; installed packages and tests left out), a
            folder (every text file in it; hidden files and folders, `__pycache__` and `node_modules` left out), or a
            file.
        exclude: a folder to leave out (where the result will stand).
        progress: told how much has been read.

    Raises:
        SourceError: nothing there, or no text in it.
    """
    if source == "stdlib":
        root = Path(sysconfig.get_paths()["stdlib"])
        kind: Literal["stdlib", "folder", "file"] = "stdlib"
        paths = list(_walk(root, _STDLIB_LEFT_OUT, None, suffix=".py"))
    elif Path(source).is_dir():
        root, kind = Path(source), "folder"
        paths = list(_walk(root, _FOLDERS_LEFT_OUT, exclude, suffix=""))
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
            if name not in left_out and not name.startswith(".") and (Path(folder) / name).resolve() != hidden_exclude
        )
        yield from (Path(folder) / name for name in names if name.endswith(suffix) and not name.startswith("."))


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
    digest, decoder, size, separators, tail = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")(), 0, 0, b""
    mark = END_OF_TEXT.encode()
    try:
        if not path.is_file():
            return SkippedFile(name, "not a regular file")
        with path.open("rb") as stream:
            while block := stream.read(BLOCK_BYTES):
                if b"\0" in block:
                    return SkippedFile(name, "binary (it has NUL bytes)")
                decoder.decode(block)
                digest.update(block)
                size += len(block)
                separators += (tail + block).count(mark)
                tail = (tail + block)[1 - len(mark) :]  # one byte short of a mark: none is missed or counted twice
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return SkippedFile(name, "not UTF-8")
    except OSError as error:
        return SkippedFile(name, f"unreadable ({error.strerror})")
    return SourceFile(name, size, digest.hexdigest(), separators) if size else SkippedFile(name, "empty")
