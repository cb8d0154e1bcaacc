import os

import pytest

from torchledger.trainer.durable import partial_path, publish, write_text


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_text_is_written_as_given(tmp_path):
    """What is written is what is read, line ends and all, and no partial file stays."""
    path = tmp_path / "page.json"
    write_text(path, "a\r\né\n")
    assert path.read_bytes() == b"a\r\n\xc3\xa9\n"
    assert names(tmp_path) == ["page.json"]


def test_failure_leaves_the_old_file(tmp_path, monkeypatch):
    """A disk that fills up while writing leaves the old file whole and nothing else."""
    path = tmp_path / "page.json"
    write_text(path, "old")

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["page.json"]


def test_publish_replaces(tmp_path):
    """Publishing renames the partial file over the old one."""
    path = tmp_path / "x"
    path.write_text("old")
    partial_path(path).write_text("new")
    publish(partial_path(path), path)
    assert path.read_text() == "new"
    assert not partial_path(path).exists()
