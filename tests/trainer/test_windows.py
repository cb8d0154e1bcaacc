import gc
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.trainer import windows
from torchledger.trainer.tokenfile import TokenFile, TokenFileError
from torchledger.trainer.tokenwriter import TokenFileWriter
from torchledger.trainer.windows import HAS_PREADV, WindowReader

WAYS = [pytest.param(False, marks=pytest.mark.skipif(not HAS_PREADV, reason="no preadv here")), True]


def write(path, ids, vocab_size=50_000):
    with TokenFileWriter(path, vocab_size=vocab_size, end_of_text_id=None, tokenizer_hash="hash") as out:
        out.write(ids)
    return TokenFile.open(path)


def descriptors():
    gc.collect()  # what earlier tests left is not counted
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(scope="module", params=[50_000, 65_536, 70_000])
def token_file(tmp_path_factory, request):
    rng = np.random.default_rng(0)
    return write(tmp_path_factory.mktemp("w") / "x", rng.integers(0, request.param, 1000), request.param)


@pytest.mark.parametrize("mapped", WAYS)
@given(starts=st.lists(st.integers(0, 993), min_size=1, max_size=5))
def test_windows_are_slices(token_file, mapped, starts):
    """Windows are the file's slices, by either way of reading, for both dtypes, also fewer than there is room for."""
    whole = token_file.read(0, 1000)
    reader = WindowReader(token_file, 5, 7, mapped=mapped)
    assert reader.read(starts).tolist() == [whole[s : s + 7].tolist() for s in starts]
    reader.close()


@pytest.mark.parametrize("mapped", WAYS)
def test_bad_id_is_named(tmp_path, mapped):
    """An id beyond the vocabulary is refused with its position before anybody computes with it."""
    token_file = write(tmp_path / "x", range(100), vocab_size=100)
    with token_file.path.open("r+b") as stream:
        stream.seek(token_file.payload_start + 42 * 2)
        stream.write((777).to_bytes(2, "little"))
    reader = WindowReader(token_file, 2, 10, mapped=mapped)
    assert reader.read([0, 20])[1].tolist() == list(range(20, 30))
    with pytest.raises(TokenFileError, match="token id 777 at position 42, beyond its vocabulary of 100"):
        reader.read([0, 40])
    reader.close()


@pytest.mark.skipif(not HAS_PREADV, reason="no preadv here")
def test_short_reads_are_finished(token_file, monkeypatch):
    """A system call that returns fewer bytes than asked is followed by others until the window is whole."""
    whole, preadv = token_file.read(0, 1000), os.preadv
    reader = WindowReader(token_file, 2, 50)
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: preadv(fd, [buffers[0][:33]], offset))
    assert reader.read([3, 900]).tolist() == [whole[3:53].tolist(), whole[900:950].tolist()]
    reader.close()


@pytest.mark.skipif(not (HAS_PREADV and windows.HAS_ADVICE), reason="no preadv or no advice here")
@pytest.mark.parametrize(("limit_s", "is_told"), [(0.0, True), (1e9, False)])
def test_after_slow_windows_the_system_is_told_what_comes(token_file, monkeypatch, limit_s, is_told):
    """Once windows come slowly, the next batch's are announced before the first is read; ids are the same."""
    told, whole = [], token_file.read(0, 1000)
    monkeypatch.setattr(windows, "SLOW_WINDOW_S", limit_s)
    monkeypatch.setattr(os, "posix_fadvise", lambda _, offset, length, advice: told.append((offset, length, advice)))
    reader = WindowReader(token_file, 2, 50)
    reader.read([3, 900])
    assert told == []
    assert reader.read([700, 20]).tolist() == [whole[700:750].tolist(), whole[20:70].tolist()]
    reader.close()
    size = token_file.header.itemsize
    wanted = [(token_file.payload_start + start * size, 50 * size, os.POSIX_FADV_WILLNEED) for start in (700, 20)]
    assert told == (wanted if is_told else [])


@pytest.mark.skipif(not HAS_PREADV, reason="no preadv here")
def test_a_file_that_shrinks(tmp_path):
    """A file cut while it is read is an error, not an endless wait and not old data."""
    token_file = write(tmp_path / "x", range(100))
    reader = WindowReader(token_file, 1, 10)
    os.truncate(token_file.path, token_file.payload_start + 100)
    with pytest.raises(TokenFileError, match="has become shorter"):
        reader.read([45])
    reader.close()


def test_a_file_that_was_replaced(tmp_path):
    """A file prepared anew since it was opened is not read under the old header."""
    token_file = write(tmp_path / "x", [1, 2, 3])
    write(tmp_path / "x", [3, 2, 1])
    with pytest.raises(TokenFileError, match="has been replaced"):
        WindowReader(token_file, 1, 1)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors the Linux way")
@pytest.mark.parametrize("mapped", WAYS)
def test_no_descriptor_stays(token_file, mapped):
    """Closing, closing twice, and the garbage collector leave no file open."""
    before = descriptors()
    reader = WindowReader(token_file, 1, 1, mapped=mapped)
    reader.close()
    reader.close()
    assert descriptors() == before
    reader = WindowReader(token_file, 1, 1, mapped=mapped)
    del reader
    gc.collect()
    assert descriptors() == before
