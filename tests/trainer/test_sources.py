import hashlib
import os
import sysconfig
from pathlib import Path

import pytest

from torchledger.trainer import sources as room
from torchledger.trainer.sources import SkippedFile, SourceError, SourceFile, find_sources
from torchledger.trainer.tokenizer import END_OF_TEXT


def test_folder(tmp_path):
    """All text of a folder is found, sorted by name and hashed; the binary, empty and foreign are listed apart."""
    (tmp_path / "b.md").write_text("b")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.weird").write_bytes("ä".encode())
    (tmp_path / "empty.txt").touch()
    (tmp_path / "latin.txt").write_bytes(b"\xe4")
    (tmp_path / "cut.txt").write_bytes("ä".encode()[:1])
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0")
    found = find_sources(tmp_path)
    assert found.kind == "folder"
    assert found.files == (
        SourceFile("b.md", 1, hashlib.sha256(b"b").hexdigest()),
        SourceFile("sub/a.weird", 2, hashlib.sha256("ä".encode()).hexdigest()),
    )
    assert found.num_bytes == 1 + 2
    assert found.skipped == (
        SkippedFile("cut.txt", "not UTF-8"),
        SkippedFile("empty.txt", "empty"),
        SkippedFile("latin.txt", "not UTF-8"),
        SkippedFile("picture.png", "binary (it has NUL bytes)"),
    )


def test_hidden_things_and_the_result_are_left_out(tmp_path):
    """Hidden files and folders, caches, and the folder of the result are not text of the user's."""
    for name in (".git/config", "__pycache__/x.py", "node_modules/x.js", "out/old.txt", ".hidden", "a.txt", "b.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = find_sources(tmp_path, exclude=tmp_path / "out")
    assert [file.name for file in found.files] == ["a.txt", "b.txt"]
    assert found.skipped == ()


def test_what_was_prepared_in_the_source_is_no_text_of_it(tmp_path):
    """A folder that `prepare` wrote is left out wherever the next result goes; one with its summary alone is not."""
    for name in ("a.txt", "b.txt", "old/prepare.json", "old/train.tokens", "mine/prepare.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = find_sources(tmp_path, exclude=tmp_path / "new")
    assert [file.name for file in found.files] == ["a.txt", "b.txt", "mine/prepare.json"]


def test_links(tmp_path):
    """Links to files are followed, dangling ones are listed, and links to folders do not lead round in circles."""
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").symlink_to(tmp_path / "a.txt")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "round").symlink_to(tmp_path)
    found = find_sources(tmp_path)
    assert [file.name for file in found.files] == ["a.txt", "b.txt"]
    assert found.skipped == (SkippedFile("dangling", "not a regular file"),)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_are_listed(tmp_path):
    """A file that may not be read is listed with the reason."""
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    (tmp_path / "b.txt").chmod(0)
    assert find_sources(tmp_path).skipped == (SkippedFile("b.txt", "unreadable (Permission denied)"),)


def test_file(tmp_path):
    """A single file is its own source, and so is a folder's only text file."""
    (tmp_path / "a.txt").write_text("text")
    assert find_sources(tmp_path / "a.txt").kind == find_sources(tmp_path).kind == "file"
    assert find_sources(tmp_path / "a.txt").root == tmp_path


def test_characters_across_blocks(tmp_path, monkeypatch):
    """Text is text and marks are counted wherever the blocks that it is read in end."""
    text = f"äöü{END_OF_TEXT}ß{END_OF_TEXT}{END_OF_TEXT}☃"
    (tmp_path / "a.txt").write_text(text, "utf-8")
    for block in range(1, 2 + len(text.encode())):
        monkeypatch.setattr(room, "BLOCK_BYTES", block)
        (file,) = find_sources(tmp_path / "a.txt").files
        assert (file.num_separators, file.num_bytes) == (3, len(text.encode()))


def test_hash_knows_names_and_contents(tmp_path):
    """The hash of a source changes with a name and with a content, and with nothing else."""
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    before = find_sources(tmp_path).sha256
    os.utime(tmp_path / "a.txt", (1, 1))
    assert find_sources(tmp_path).sha256 == before
    (tmp_path / "b.txt").rename(tmp_path / "c.txt")
    renamed = find_sources(tmp_path).sha256
    (tmp_path / "c.txt").write_text("c")
    assert len({before, renamed, find_sources(tmp_path).sha256}) == 3


def test_progress_ends_at_the_total(tmp_path):
    """Progress counts the bytes read up to all of them."""
    (tmp_path / "a.txt").write_text("abc")
    (tmp_path / "b.txt").write_text("de")
    events = []
    find_sources(tmp_path, progress=lambda *event: events.append(event))
    assert events == [(3, 5, "reading"), (5, 5, "reading")]


def test_stdlib():
    """The standard library is its `.py` files, without tests, caches and installed packages."""
    found = find_sources("stdlib")
    names = [file.name for file in found.files]
    assert found.root == Path(sysconfig.get_paths()["stdlib"])
    assert {"os.py", "json/decoder.py"} <= set(names)
    assert all(name.endswith(".py") for name in names)
    assert not {"site-packages", "dist-packages", "test", "tests", "__pycache__"} & {
        p for n in names for p in n.split("/")
    }
    assert names == sorted(names)


def test_nothing_there(tmp_path):
    """A path that is not there, and a folder without text, say so."""
    with pytest.raises(SourceError, match="no file or folder"):
        find_sources(tmp_path / "no")
    with pytest.raises(SourceError, match=r"no text found .* \(0 files skipped\)"):
        find_sources(tmp_path)
    (tmp_path / "x.bin").write_bytes(b"\0")
    with pytest.raises(SourceError, match=r"1 files skipped: x\.bin is binary"):
        find_sources(tmp_path)
