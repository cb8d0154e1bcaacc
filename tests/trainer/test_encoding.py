import signal
import subprocess
import sys

import pytest

from torchledger.trainer import encoding as room
from torchledger.trainer.encoding import encode_groups, groups
from torchledger.trainer.pieces import Piece
from torchledger.trainer.tokenizer import ByteTokenizer, TokenizerError


def piece(text):
    return Piece(text, len(text.encode()), validation=False, ends_document=True)


def test_groups_are_cut_by_bytes_and_by_number(monkeypatch):
    """A group ends with the piece that fills its bytes, or its number; none is lost or empty."""
    monkeypatch.setattr(room, "GROUP_BYTES", 10)
    monkeypatch.setattr(room, "GROUP_PIECES", 3)
    stream = [piece(text) for text in ("a" * 11, "b", "c", "d", "e" * 9, "f", "g")]
    found = [[p.text[0] for p in group] for group in groups(iter(stream))]
    assert found == [["a"], ["b", "c", "d"], ["e", "f"], ["g"]]


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_ids_come_in_the_texts_order(num_workers):
    """However many processes encode, each piece has its own ids, and the order is the text's."""
    stream = [[piece(f"{i} {j} é") for j in range(i % 3)] for i in range(9)]
    found = [(p, ids) for group, encoded in encode_groups(stream, ByteTokenizer(), num_workers)
             for p, ids in zip(group, encoded, strict=True)]  # fmt: skip
    assert [p for p, _ in found] == [p for group in stream for p in group]
    assert all(ids.tolist() == list(p.text.encode()) for p, ids in found)


def test_only_a_few_groups_are_held():
    """No more of the stream is taken than keeps the processes at work."""
    taken = []

    def stream():
        for i in range(20):
            taken.append(i)
            yield [piece("x")]

    encoded = encode_groups(stream(), ByteTokenizer(), 2)
    next(encoded)
    assert len(taken) == 2 + 1
    encoded.close()


def test_a_process_that_dies_is_told(monkeypatch):
    """A worker that is killed ends the work with a message, not with a hang."""
    started, real = [], room.subprocess.Popen
    monkeypatch.setattr(room.subprocess, "Popen", lambda *a, **k: started.append(real(*a, **k)) or started[-1])

    def stream():
        yield [piece("x")]
        for process in started:
            process.send_signal(signal.SIGKILL)
        yield [piece("y")]
        yield [piece("z")]

    with pytest.raises(TokenizerError, match="has died"):
        list(encode_groups(stream(), ByteTokenizer(), 2))
    assert all(process.poll() is not None for process in started)


def test_no_worker_outlives_the_work(monkeypatch):
    """Whether the ids are taken to the end or not, every process has ended afterwards."""
    started, real = [], room.subprocess.Popen
    monkeypatch.setattr(room.subprocess, "Popen", lambda *a, **k: started.append(real(*a, **k)) or started[-1])
    encoded = encode_groups(([piece("x")] for _ in range(9)), ByteTokenizer(), 2)
    next(encoded)
    encoded.close()
    list(encode_groups([[piece("x")]], ByteTokenizer(), 2))
    # two for nine groups, and one for a single group: no process begins without a group for it
    assert [process.poll() is not None for process in started] == [True] * 3


SCRIPT = """
import sys
from pathlib import Path
from torchledger.trainer.prepare import prepare
print(prepare(sys.argv[1], sys.argv[2], tokenizer="bytes", validation_fraction=0.3, num_workers=2).train.num_tokens > 0)
"""


def test_a_script_without_a_guard_runs_once(tmp_path):
    """A script that prepares at its top level, with workers, is not run again by them."""
    (tmp_path / "x.jsonl").write_text('{"text": "some words"}\n' * 40)
    (tmp_path / "script.py").write_text(SCRIPT)
    words = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "x.jsonl"), str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)
