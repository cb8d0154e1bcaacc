import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from prepared_stories import STORIES, documents, write_table

from torchledger.trainer import encoding
from torchledger.trainer import prepare as preparing
from torchledger.trainer import unfinished as room
from torchledger.trainer.prepare import prepare
from torchledger.trainer.tokenizer import ByteTokenizer, has_tokenizers
from torchledger.trainer.tokenwriter import TokenFileWriter
from torchledger.trainer.unfinished import NAME, Journal, Unfinished

bpe_only = pytest.mark.skipif(not has_tokenizers(), reason="needs the tokenizers library")


@pytest.fixture
def writers(tmp_path):
    """A training file of two documents, and an empty validation file."""
    with (
        TokenFileWriter(tmp_path / "a", vocab_size=257, end_of_text_id=256, tokenizer_hash="t") as train,
        TokenFileWriter(tmp_path / "b", vocab_size=257, end_of_text_id=256, tokenizer_hash="t") as validation,
    ):
        for document in ([1, 2], [3]):
            train.write(document)
            train.end_document()
        yield train, validation


def test_what_is_noted_is_read(tmp_path, writers, monkeypatch):
    """How far it was comes back, for the same inputs only, and is gone once the preparation is done."""
    monkeypatch.setattr(room, "INTERVAL_S", 0.0)
    journal = Journal(tmp_path, "inputs", ByteTokenizer(), ("said",))
    assert not journal.is_begun
    journal.note(3, writers, [30, 0])
    assert journal.is_begun
    done = Unfinished("inputs", ByteTokenizer().to_json(), ("said",), 3, (5, 0), (2, 0), (30, 0))
    assert Unfinished.read(tmp_path, "inputs") == done
    assert Unfinished.read(tmp_path, "others") is None
    journal.close()
    journal.close()
    assert Unfinished.read(tmp_path, "inputs") is None


def test_it_is_not_noted_too_often(tmp_path, writers):
    """Within the interval nothing is written."""
    journal = Journal(tmp_path, "inputs", ByteTokenizer(), ())
    journal.note(3, writers, [30, 0])
    assert not journal.is_begun


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"inputs_hash": "inputs"}', b"3"])
def test_a_damaged_page_is_none(tmp_path, content):
    """A page that makes no sense means that all is done anew."""
    (tmp_path / NAME).write_bytes(content)
    assert Unfinished.read(tmp_path, "inputs") is None


def test_a_tokenizer_that_cannot_be_read_is_none(tmp_path, writers, monkeypatch):
    """So does a tokenizer that is none."""
    monkeypatch.setattr(room, "INTERVAL_S", 0.0)
    Journal(tmp_path, "inputs", ByteTokenizer(), ()).note(3, writers, [30, 0])
    row = json.loads((tmp_path / NAME).read_text())
    (tmp_path / NAME).write_text(json.dumps(row | {"tokenizer": "none"}))
    assert Unfinished.read(tmp_path, "inputs") is None


GROWING = """
import os, sys
from pathlib import Path
from torchledger.trainer import encoding, prepare as room, tokenwriter, unfinished
encoding.GROUP_PIECES, unfinished.INTERVAL_S = 4, 0.0
left, end = int(sys.argv[3]), tokenwriter.TokenFileWriter.end_document
def end_document(self):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), int(sys.argv[4]))
    end(self)
tokenwriter.TokenFileWriter.end_document = end_document
if __name__ == "__main__":
    room.prepare(Path(sys.argv[1]), Path(sys.argv[2]), tokenizer=sys.argv[5], vocab_size=300, validation_fraction=0.3,
                 num_workers=int(sys.argv[6]))
"""


@pytest.mark.parametrize(("tokenizer", "workers"), [("bytes", 1), ("bytes", 2), pytest.param("bpe", 1, marks=bpe_only)])
def test_a_killed_preparation_goes_on(tmp_path, monkeypatch, tokenizer, workers):
    """Killed again and again, it goes on where it was, encodes no group twice, and gives the uninterrupted bytes."""
    path = write_table(tmp_path / "x.jsonl")
    options = {"tokenizer": tokenizer, "vocab_size": 300, "validation_fraction": 0.3, "num_workers": 1}
    monkeypatch.setattr(encoding, "GROUP_PIECES", 4)
    whole = prepare(path, tmp_path / "whole", **options)
    # Document 25 is in the 7th group of four; 20 after the 24 of six groups is the last of the 11th.
    for documents_done, sign in ((25, signal.SIGKILL), (20, signal.SIGINT)):
        words = [str(documents_done), str(int(sign)), tokenizer, str(workers)]
        command = [sys.executable, "-c", GROWING, str(path), str(tmp_path / "out"), *words]
        done = subprocess.run(command, check=False, capture_output=True, timeout=60)
        assert done.returncode == -sign, done.stderr
        assert (tmp_path / "out" / ".prepare.unfinished.json").is_file()
    encoded = []
    real = preparing.encode_groups
    monkeypatch.setattr(
        preparing,
        "encode_groups",
        lambda stream, *rest: real((encoded.append(group) or group for group in stream), *rest),
    )
    data = prepare(path, tmp_path / "out", **options)
    assert len(encoded) == 16 - 10  # 60 records and the table's end are 16 groups, of which 10 were written down
    for one in (tmp_path / "whole").iterdir():
        assert one.read_bytes() == (tmp_path / "out" / one.name).read_bytes()
    assert replace(data, folder=whole.folder) == whole
    assert not [name for name in os.listdir(tmp_path / "out") if name.startswith(".")]  # noqa: PTH208  hidden too


def test_a_lost_partial_file_begins_anew(tmp_path, monkeypatch):
    """Where the page says more than the partial files have, all is encoded again, and the result is the same."""
    path = write_table(tmp_path / "x.jsonl")
    command = [sys.executable, "-c", GROWING, str(path), str(tmp_path / "out"), "25", str(int(signal.SIGKILL))]
    subprocess.run([*command, "bytes", "1"], check=False, timeout=60)
    (tmp_path / "out" / ".train.tokens.partial").write_bytes(b"short")
    data = prepare(path, tmp_path / "out", tokenizer="bytes", validation_fraction=0.3)
    assert documents(data) == sorted(STORIES)


RANDOM = """
import sys
from pathlib import Path
from torchledger.trainer import encoding, unfinished
from torchledger.trainer.prepare import prepare
encoding.GROUP_PIECES, unfinished.INTERVAL_S = 4, 0.0
if __name__ == "__main__":
    prepare(Path(sys.argv[1]), Path(sys.argv[2]), tokenizer="bytes", validation_fraction=0.3,
            num_workers=int(sys.argv[3]))
"""


@pytest.mark.proof
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_at_random_moments_it_gives_the_same_bytes(tmp_path, monkeypatch, workers):
    """SIGKILL after a random time, until one gets through: the files are those of the uninterrupted, byte for byte."""
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in STORIES * 100))
    monkeypatch.setattr(encoding, "GROUP_PIECES", 4)
    prepare(path, tmp_path / "whole", tokenizer="bytes", validation_fraction=0.3)
    drawn, killed = random.Random(workers), 0
    command = [sys.executable, "-c", RANDOM, str(path), str(tmp_path / "out"), str(workers)]
    for attempt in range(60):
        process = subprocess.Popen(command)
        time.sleep(drawn.uniform(0.3, 1.0 + attempt / 10))
        process.kill()
        if process.wait() == 0:
            break
        killed += 1
    assert process.returncode == 0
    assert killed >= 3
    for one in (tmp_path / "whole").iterdir():
        assert one.read_bytes() == (tmp_path / "out" / one.name).read_bytes()
    assert sorted(os.listdir(tmp_path / "out")) == sorted(os.listdir(tmp_path / "whole"))  # noqa: PTH208  hidden too
