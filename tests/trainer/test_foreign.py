import struct

import numpy as np
import pytest

from torchledger.trainer.tokenfile import TokenFile, TokenFileError

IDS = [5, 9, 7, 9, 3]  # where 9 ends a document: 5 9, 7 9, 3


def headerless(path, dtype="uint16", ids=IDS):
    path.write_bytes(np.array(ids).astype(f"<{np.dtype(dtype).str[1:]}").tobytes())
    return path


def llm_c(path, ids, *, magic=20240520, version=1, dtype="<u2", count=None):
    head = struct.pack("<3i", magic, version, len(ids) if count is None else count).ljust(1024, b"\0")
    path.write_bytes(head + np.array(ids, dtype).tobytes())
    return path


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"])
def test_headerless_files_of_every_integer_type(tmp_path, dtype):
    """Ids and nothing else are read as the type that is told, and end documents where the mark that is told stands."""
    path = headerless(tmp_path / "train.bin", dtype)
    token_file = TokenFile.open(path, dtype=dtype, vocab_size=10, end_of_text_id=9, verify=True)
    assert token_file.read(0, 5).tolist() == IDS
    assert (token_file.layout, token_file.num_tokens, token_file.vocab_size) == ("headerless", 5, 10)
    assert token_file.documents().tolist() == [0, 2, 4, 5]
    assert token_file.part(1, 3).documents().tolist() == [0, 1, 3]


@pytest.mark.parametrize(
    ("dtype", "size"), [("uint16", 2**16), ("int16", 2**15), ("uint8", 2**8), ("int32", 2**31), ("uint64", 2**32)]
)
def test_a_vocabulary_that_is_not_told_is_what_the_type_holds(tmp_path, dtype, size):
    """Without a vocabulary, and with one that is larger, it is the type's own range (32 bits at most)."""
    path = headerless(tmp_path / "x.bin", dtype)
    assert TokenFile.open(path, dtype=dtype).vocab_size == size
    assert TokenFile.open(path, dtype=dtype, vocab_size=2**40).vocab_size == size


@pytest.mark.parametrize("vocab_size", [65_535, 65_536, 65_537])
def test_the_boundary_of_sixteen_bits(tmp_path, vocab_size):
    """Id 65,535 in a uint16 file belongs to vocabularies of 65,536 and more, and to none of 65,535."""
    path = headerless(tmp_path / "x.bin", ids=[0, 65_535])
    if vocab_size > 65_535:
        TokenFile.open(path, dtype="uint16", vocab_size=vocab_size, verify=True)
    else:
        with pytest.raises(TokenFileError, match=r"token id 65,535 at position 1, beyond its vocabulary of 65,535"):
            TokenFile.open(path, dtype="uint16", vocab_size=vocab_size, verify=True)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_a_negative_id_is_refused_as_what_it_is(tmp_path, dtype):
    """-1, which pads in some projects, is no token: it is named with its position, whatever vocabulary is told."""
    path = headerless(tmp_path / "x.bin", dtype, ids=[4, -1])
    for vocab_size in (10, None):
        with pytest.raises(TokenFileError, match="token id -1 at position 1, beyond its vocabulary"):
            TokenFile.open(path, dtype=dtype, vocab_size=vocab_size, verify=True)


def test_the_wrong_type_is_suspected(tmp_path):
    """Ids of 32 bits read as 16 give ids beyond the vocabulary, and the message asks about the type."""
    path = headerless(tmp_path / "x.bin", "uint32", ids=[70_000, 60_000])
    with pytest.raises(TokenFileError, match=r"token id 60,000 at position 2.*are its ids really uint16\?"):
        TokenFile.open(path, dtype="uint16", vocab_size=50_000, verify=True)


@pytest.mark.parametrize(
    ("content", "dtype", "message"),
    [
        (b"\x05\x00\x07\x00", None, "no header known here.*say their type"),
        (b"\x05\x00\x07", "uint16", "3 bytes, no whole number of uint16 ids of 2 bytes"),
        (b"\x05\x00\x07\x00", "float32", "no token ids are made of 'float32'"),
        (b"", "uint16", "is empty"),
        (b"\x1f\x8b\x08\x00", "uint16", "a gzip file"),
        (b"\x28\xb5\x2f\xfd", "uint16", "a zstd file"),
        (b"PAR1\x00\x00", "uint16", "a Parquet file"),
        (b"PK\x03\x04", "uint16", "a zip file"),
        (b"To be, or not to be. " * 4, "uint16", "is text, not uint16 ids"),
    ],
)
def test_what_is_no_row_of_ids_is_refused(tmp_path, content, dtype, message):
    """Compressed files, text, odd lengths, other types: each is told by its name."""
    path = tmp_path / "x.bin"
    path.write_bytes(content)
    with pytest.raises(TokenFileError, match=message):
        TokenFile.open(path, dtype=dtype)


def test_documents_that_nothing_tells(tmp_path):
    """Without an end-of-text id a headerless file's documents are not guessed."""
    token_file = TokenFile.open(headerless(tmp_path / "x.bin"), dtype="uint16")
    with pytest.raises(TokenFileError, match="nothing tells where the documents"):
        token_file.documents()
    with pytest.raises(TokenFileError, match="end-of-text id 10 is outside the vocabulary of 10"):
        TokenFile.open(token_file.path, dtype="uint16", vocab_size=10, end_of_text_id=10)


@pytest.mark.parametrize("ids", [[9, 9, 1], [9], [1], [1, 9]])
def test_every_mark_ends_a_document(tmp_path, ids):
    """As many documents as marks, and one more where tokens follow the last."""
    token_file = TokenFile.open(headerless(tmp_path / "x.bin", ids=ids), dtype="uint16", end_of_text_id=9)
    offsets = token_file.documents().tolist()
    assert len(offsets) - 1 == ids.count(9) + (ids[-1] != 9)
    assert (offsets[0], offsets[-1]) == (0, len(ids))


@pytest.mark.parametrize("dtype", ["<u2", "<i4", "|u1", "<i8"])
def test_a_numpy_header_is_not_read_as_tokens(tmp_path, dtype):
    """The type and the count come from the header, its bytes are no ids, and another type is refused."""
    path = tmp_path / "x.npy"
    np.save(path, np.array(IDS, dtype))
    token_file = TokenFile.open(path, vocab_size=10, verify=True)
    assert (token_file.layout, token_file.read(0, 5).tolist()) == ("npy", IDS)
    assert token_file.header.dtype == np.dtype(dtype).name
    with pytest.raises(TokenFileError, match=f"says itself that its ids are {np.dtype(dtype).name}, not uint32"):
        TokenFile.open(path, dtype="uint32")


def test_rows_of_a_numpy_array_follow_each_other(tmp_path):
    """A table of ids is its rows one after another; in Fortran order they are not, and it is refused."""
    path, table = tmp_path / "x.npy", np.arange(6, dtype=np.uint16).reshape(2, 3)
    np.save(path, table)
    assert TokenFile.open(path).read(0, 6).tolist() == [0, 1, 2, 3, 4, 5]
    np.save(path, np.asfortranarray(table))
    with pytest.raises(TokenFileError, match="Fortran order"):
        TokenFile.open(path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([1.5]), "array of float64"),
        (np.array([1], ">u2"), "array of >u2"),
        (np.array([None]), "array of object"),
    ],
)
def test_numpy_arrays_that_are_no_tokens(tmp_path, array, message):
    """Numbers with a point, big-endian ones and pickled objects are refused; nothing is unpickled."""
    path = tmp_path / "x.npy"
    np.save(path, array, allow_pickle=True)
    with pytest.raises(TokenFileError, match=message):
        TokenFile.open(path)


def test_a_numpy_file_cut_short(tmp_path):
    """Missing ids are counted in bytes; a header cut short is called damaged."""
    path = tmp_path / "x.npy"
    np.save(path, np.array(IDS, "<u2"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    with pytest.raises(TokenFileError, match=f"truncated: 3 of {len(whole)} bytes"):
        TokenFile.open(path)
    path.write_bytes(whole[:20])
    with pytest.raises(TokenFileError, match="damaged NumPy header"):
        TokenFile.open(path)


def test_an_llm_c_file(tmp_path):
    """Of GPT-2's tokens the vocabulary is known, and each 50,256 begins a document."""
    ids = [50_256, 11, 12, 50_256, 13]
    token_file = TokenFile.open(llm_c(tmp_path / "fineweb_train_000001.bin", ids), verify=True)
    assert (token_file.layout, token_file.vocab_size, token_file.header.dtype) == ("llm.c", 50_257, "uint16")
    assert token_file.read(0, 5).tolist() == ids
    assert token_file.documents().tolist() == [0, 3, 5]


def test_an_llm_c_file_of_llama_3(tmp_path):
    """Version 7 has ids of 32 bits and Llama 3's vocabulary."""
    path = llm_c(tmp_path / "x.bin", [128_000, 5, 128_255], magic=20240801, version=7, dtype="<u4")
    token_file = TokenFile.open(path, verify=True)
    assert (token_file.vocab_size, token_file.header.end_of_text_id) == (128_256, 128_000)
    assert token_file.read(0, 3).tolist() == [128_000, 5, 128_255]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 2}, "version 2; version 1 is known"),
        ({"count": 6}, "truncated: 2 of 1,036 bytes"),
        ({"count": 4}, "too long: 2 bytes"),
        ({"count": -1}, "damaged header: -1 tokens"),
    ],
)
def test_llm_c_files_that_are_not_whole(tmp_path, options, message):
    """Another version, and a count that the size denies, are refused."""
    with pytest.raises(TokenFileError, match=message):
        TokenFile.open(llm_c(tmp_path / "x.bin", IDS, **options))


def test_a_file_that_changed_is_noticed(tmp_path):
    """A headerless file that grew since it was opened is another file."""
    path = headerless(tmp_path / "x.bin")
    token_file = TokenFile.open(path, dtype="uint16", vocab_size=10)
    token_file.require_unchanged()
    headerless(path, ids=[*IDS, 1])
    with pytest.raises(TokenFileError, match="has been replaced by another"):
        token_file.require_unchanged()
