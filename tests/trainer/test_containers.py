import gzip
import hashlib
import importlib.util

import pytest

from torchledger.trainer import containers as room
from torchledger.trainer.containers import FileFormat, SourceError, blocks, format_of, require_library

zstandard = pytest.importorskip("zstandard")

TEXT = b"".join(b"line %d\n" % i for i in range(20_000))


@pytest.mark.parametrize(
    ("name", "kind", "compression"),
    [
        ("a.txt", "text", "none"),
        ("a", "text", "none"),
        ("a.py.gz", "text", "gzip"),
        ("A.TXT.ZST", "text", "zstd"),
        ("a.jsonl", "jsonl", "none"),
        ("a.ndjson.zst", "jsonl", "zstd"),
        ("c4-train.00000-of-01024.json.gz", "jsonl", "gzip"),
        ("settings.json", "text", "none"),
        ("train-00000-of-00001.parquet", "parquet", "none"),
        ("data-00000-of-00002.arrow", "arrow", "none"),
        (".gz", "text", "none"),
    ],
)
def test_a_name_says_the_format(name, kind, compression):
    """The last suffix is the compression, the one before it what is in it."""
    assert format_of(name) == FileFormat(kind, compression)


def compress(compression):
    """Two frames, and for gzip the padding that tapes leave."""
    half = len(TEXT) // 2
    if compression == "gzip":
        return gzip.compress(TEXT[:half]) + gzip.compress(TEXT[half:]) + bytes(512)
    if compression == "zstd":
        return zstandard.compress(TEXT[:half]) + zstandard.compress(TEXT[half:])
    return TEXT


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("size", [1000, 1 << 20])
def test_blocks_are_alike_however_the_file_is_compressed(tmp_path, compression, size):
    """Every block but the last has the size asked for, all together are the text, and the hash is of the file."""
    path, digest = tmp_path / "x", hashlib.sha256()
    path.write_bytes(compress(compression))
    found = list(blocks(path, FileFormat("text", compression), digest, size))
    assert found == [TEXT[i : i + size] for i in range(0, len(TEXT), size)]
    assert digest.hexdigest() == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_compressed_text_cut_short(tmp_path, compression):
    """A file whose last bytes are missing is refused, in every format, however its library takes it."""
    path, whole = tmp_path / "x", compress(compression).rstrip(b"\0")
    for kept in (len(whole) - 1, len(whole) // 2 + 100, 10):
        path.write_bytes(whole[:kept])
        with pytest.raises(SourceError, match="cut short: its compressed data has no end"):
            list(blocks(path, FileFormat("text", compression)))


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@pytest.mark.parametrize("content", [b"no compression at all", None])
def test_compressed_text_that_is_damaged(tmp_path, compression, content):
    """Bytes that no compressor wrote, and rubbish behind the end, are called damaged."""
    path = tmp_path / "x"
    path.write_bytes(content or compress(compression) + b"rubbish")
    with pytest.raises(SourceError, match="is damaged"):
        list(blocks(path, FileFormat("text", compression)))


def test_a_bomb_is_taken_a_little_at_a_time(tmp_path, monkeypatch):
    """64 MiB of zeros in 64 KiB of gzip come in blocks of the size asked for."""
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(bytes(1 << 26)))
    assert max(map(len, blocks(path, FileFormat("text", "gzip")))) == room.BLOCK_BYTES


@pytest.mark.parametrize(
    ("name", "library"), [("a.zst", "zstandard"), ("a.parquet", "pyarrow"), ("a.arrow", "pyarrow")]
)
def test_a_missing_library_is_named(monkeypatch, name, library):
    """Without its library a file is refused with the command that installs it; what needs none passes."""
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda asked: None if asked == library else real(asked))
    with pytest.raises(SourceError, match=rf"{name} needs the {library} library: pip install 'torchledger\[data\]'"):
        require_library(name, format_of(name))
    require_library("a.txt.gz", format_of("a.txt.gz"))
