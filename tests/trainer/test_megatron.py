import struct

import numpy as np
import pytest

from torchledger.trainer.tokenfile import TokenFile, TokenFileError

# Three sequences of 2, 3 and 1 tokens in two documents: the first has two of them.
IDS = [5, 6, 7, 8, 9, 4]
LENGTHS, BOUNDS = (2, 3, 1), (0, 2, 3)


def write(folder, *, code=8, version=1, lengths=LENGTHS, places=None, bounds=BOUNDS, modes=False, cut=None):
    """Write a data set as Megatron-LM's IndexedDatasetBuilder does."""
    dtype = {1: "<u1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}.get(code, "<u2")
    size = np.dtype(dtype).itemsize
    (folder / "x.bin").write_bytes(np.array(IDS, dtype).tobytes())
    starts = [size * sum(lengths[:i]) for i in range(len(lengths))]
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", version, code, len(lengths), len(bounds))
    index += struct.pack(f"<{len(lengths)}i", *lengths)
    index += struct.pack(f"<{len(lengths)}q", *(places or starts))
    index += struct.pack(f"<{len(bounds)}q", *bounds)
    index += bytes(len(lengths)) if modes else b""
    (folder / "x.idx").write_bytes(index[:cut])
    return folder / "x.bin"


@pytest.mark.parametrize("code", [1, 3, 4, 5, 8])
@pytest.mark.parametrize("modes", [False, True])
def test_a_data_set_is_read(tmp_path, code, modes):
    """Type and documents come from the index, found from either of the two files."""
    path = write(tmp_path, code=code, modes=modes)
    for either in (path, path.with_suffix(".idx")):
        token_file = TokenFile.open(either, vocab_size=10, verify=True)
        assert (token_file.layout, token_file.path) == ("megatron", path)
        assert token_file.read(0, 6).tolist() == IDS
        assert token_file.documents().tolist() == [0, 2 + 3, 2 + 3 + 1]
        assert token_file.header.num_documents == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 2}, "version 2; version 1 is known"),
        ({"code": 7}, "type code 7, which is no integer type"),
        ({"cut": 20}, "truncated within its header"),
        ({"cut": -1}, "truncated: 1 bytes are missing"),
        ({"places": (0, 4, 12)}, "sequence 2 does not begin where the one before it ends"),
        ({"bounds": (0, 2)}, "no way from 0 to 3"),
        ({"bounds": (0, 4, 3)}, "no way from 0 to 3"),
        ({"lengths": (2, 3, 2)}, r"x\.bin is truncated: 2 of 14 bytes"),
        ({"lengths": (2, 3), "bounds": (0, 2)}, r"x\.bin is too long: 2 bytes"),
        ({"lengths": (2, -3, 1)}, "sequence 1 does not begin"),
    ],
)
def test_data_sets_that_are_not_whole(tmp_path, options, message):
    """An index cut short or wrong, and one that denies the other file's size, are refused."""
    path = write(tmp_path, **options)
    with pytest.raises(TokenFileError, match=message):
        TokenFile.open(path)


def test_a_lost_half_is_named(tmp_path):
    """An index whose ids have gone names them; ids whose index has gone have no header known here."""
    path = write(tmp_path)
    ids = path.read_bytes()
    path.unlink()
    with pytest.raises(TokenFileError, match=r"cannot read .*x\.bin, which x\.idx belongs to"):
        TokenFile.open(path.with_suffix(".idx"))
    path.write_bytes(ids)
    path.with_suffix(".idx").unlink()
    with pytest.raises(TokenFileError, match="no header known here"):
        TokenFile.open(path)


def test_an_index_that_is_none(tmp_path):
    """A file that happens to be called x.idx is not taken for an index."""
    path = write(tmp_path)
    path.with_suffix(".idx").write_bytes(b"anything")
    with pytest.raises(TokenFileError, match="not the index of a Megatron data set"):
        TokenFile.open(path)


def test_documents_without_tokens_are_none(tmp_path):
    """A document without sequences, or with empty ones, has no place of its own."""
    path = write(tmp_path, lengths=(2, 0, 4), bounds=(0, 1, 1, 2, 3))
    assert TokenFile.open(path).documents().tolist() == [0, 2, 6]
