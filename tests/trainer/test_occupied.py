"""A preparation writes over nothing that is not its own, unless told."""

import os
import signal
import subprocess
import sys

import pytest

from torchledger.trainer.prepare import prepare
from torchledger.trainer.prepared import PrepareError, load_prepared

BEGUN = """
import os, signal, sys
from torchledger.trainer import prepare as room, unfinished
def kill(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
unfinished.INTERVAL_S = float(sys.argv[4])
setattr(room, sys.argv[3], kill)
room.prepare(sys.argv[1], sys.argv[2], tokenizer="bytes")
"""


@pytest.fixture
def texts(tmp_path):
    """Eight small texts."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.txt").write_text(f"file {number} says hello to the world\n" * 20)
    return folder


def _bytes(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("change", "why"), [({"seed": 1}, "the same text, prepared otherwise"), ({"text": "more\n" * 40}, "of other text")]
)
def test_other_prepared_data_is_replaced_only_if_told(texts, tmp_path, change, why):
    """Refused with what is there and why it is another, every byte as before; told to, it is replaced."""
    out = tmp_path / "out"
    prepare(texts, out, tokenizer="bytes")
    before = _bytes(out)
    if "text" in change:
        (texts / "9.txt").write_text(change.pop("text"))
    with pytest.raises(
        PrepareError, match=rf"has prepared data in it already \(.*texts: bytes tokenizer.*{why}.*--force"
    ):
        prepare(texts, out, tokenizer="bytes", **change)
    assert _bytes(out) == before
    assert (
        load_prepared(out).inputs_hash != prepare(texts, out, tokenizer="bytes", replacing=True, **change).inputs_hash
    )


@pytest.mark.parametrize("name", ["tokenizer.json", "train.tokens"])
def test_a_foreign_file_is_not_written_over(texts, tmp_path, name):
    """The tokenizer of a downloaded model, a token file of another program: named, and left as it is."""
    out = tmp_path / "model"
    out.mkdir()
    (out / name).write_text("precious")
    (out / "config.json").write_text("{}")
    with pytest.raises(PrepareError, match=rf"{name} in it and no prepare.json.*--force"):
        prepare(texts, out, tokenizer="bytes")
    assert _bytes(out) == {name: b"precious", "config.json": b"{}"}
    prepare(texts, out, tokenizer="bytes", replacing=True)
    assert (out / "config.json").read_text() == "{}"


def test_a_page_of_another_program_is_not_written_over(texts, tmp_path):
    """A `prepare.json` that says nothing of inputs is nobody's of ours, nor is the tokenizer beside it."""
    before = {"prepare.json": b'{"steps": ["mine"]}', "tokenizer.json": b"precious"}
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(PrepareError, match=r"prepare.json in it that `prepare` did not write.*--force"):
        prepare(texts, tmp_path, tokenizer="bytes")
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_files_of_other_names_are_let_be(texts, tmp_path):
    """A folder that has something else in it is as good as any."""
    (tmp_path / "notes.md").write_text("mine")
    prepare(texts, tmp_path, tokenizer="bytes")
    assert (tmp_path / "notes.md").read_text() == "mine"


@pytest.mark.parametrize(("step", "interval"), [("save_tokenizer", 0), ("_describe", 0), ("save_tokenizer", 60)])
def test_what_a_kill_left_is_its_own(texts, tmp_path, step, interval):
    """Killed while files are put in place, the same goes on untold, and another preparation is refused.

    So it is of a preparation that was too short to write down how far it was.
    """
    out = tmp_path / "out"
    command = [sys.executable, "-c", BEGUN, str(texts), str(out), step, str(interval)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    with pytest.raises(PrepareError, match="another preparation in it, which is not finished"):
        prepare(texts, out, tokenizer="bytes", seed=3)
    assert not prepare(texts, out, tokenizer="bytes").reused
    assert not [name for name in os.listdir(out) if name.startswith(".")]  # noqa: PTH208  hidden too


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_a_page_that_cannot_be_read_keeps_nobody_out(texts, tmp_path, content):
    """Data whose page is damaged cannot be used by anybody: it is prepared again, as its own message says."""
    out = tmp_path / "out"
    whole = prepare(texts, out, tokenizer="bytes")
    (out / "prepare.json").write_text(content)
    assert prepare(texts, out, tokenizer="bytes").to_dict() == whole.to_dict()
