import hashlib
import math

import numpy as np
import pytest

from torchledger.trainer import survey as room
from torchledger.trainer.survey import DocumentLengths, survey
from torchledger.trainer.tokenfile import TokenFile, TokenFileError
from torchledger.trainer.tokenwriter import TokenFileWriter


@pytest.fixture
def own(tmp_path):
    """Documents of 2, 1 and 3 tokens and an end each: 9 tokens, five kinds of ids."""
    with TokenFileWriter(tmp_path / "x.tokens", vocab_size=300, end_of_text_id=299, tokenizer_hash="t") as out:
        for document in ([1, 2], [3], [1, 2, 4]):
            out.write(document)
            out.end_document()
    return tmp_path / "x.tokens"


def test_a_file_of_ours_by_hand(own):
    """Counts, lengths and entropy of `1 2 . 3 . 1 2 4 .`: the end thrice, 1 and 2 twice, 3 and 4 once of 9."""
    found = survey(TokenFile.open(own))
    assert (found.num_tokens, found.largest_id, found.num_distinct, found.num_end_of_text) == (9, 299, 5, 3)
    assert found.documents == DocumentLengths(3, 2, 3.0, 9 / 3, 4)
    entropy = -sum(n / 9 * math.log(n / 9) for n in (3, 2, 2, 1, 1))
    assert found.unigram_entropy_nats == pytest.approx(entropy, abs=1e-12)
    assert found.is_proven
    assert found.ids_sha256 == TokenFile.open(own).header.payload_sha256


def test_a_file_that_says_nothing(tmp_path):
    """A headerless file without an end-of-text id has no documents, no proof, and all that its ids tell."""
    path = tmp_path / "x.bin"
    path.write_bytes(np.array([5, 6, 6], np.uint32).tobytes())
    found = survey(TokenFile.open(path, dtype="uint32"))
    assert (found.documents, found.num_end_of_text, found.is_proven) == (None, None, False)
    assert (found.largest_id, found.num_distinct) == (6, 2)
    assert found.ids_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_huge_ids_are_not_counted(tmp_path):
    """Ids beyond what can be counted leave the count unknown, never zero, and take no memory."""
    path = tmp_path / "x.bin"
    path.write_bytes(np.array([1, 2**31], np.uint32).tobytes())
    found = survey(TokenFile.open(path, dtype="uint32"))
    assert (found.largest_id, found.num_distinct, found.unigram_entropy_nats) == (2**31, None, None)


def test_an_empty_array(tmp_path):
    """No tokens have no largest id, no entropy and no documents."""
    np.save(tmp_path / "x.npy", np.empty(0, np.uint16))
    found = survey(TokenFile.open(tmp_path / "x.npy", end_of_text_id=3))
    assert (found.num_tokens, found.largest_id, found.unigram_entropy_nats, found.documents) == (0, None, None, None)


def test_chunks_count_together(tmp_path, monkeypatch):
    """Whatever is read at a time, the counts are of all, and progress ends with all."""
    ids = np.random.default_rng(0).integers(0, 50, 1000).astype(np.uint16)
    (tmp_path / "x.bin").write_bytes(ids.tobytes())
    token_file, told = TokenFile.open(tmp_path / "x.bin", dtype="uint16"), []
    whole = survey(token_file)
    real = TokenFile.chunks
    monkeypatch.setattr(TokenFile, "chunks", lambda self: real(self, 37))
    assert survey(token_file, lambda *event: told.append(event)) == whole
    assert whole.num_distinct == len(set(ids.tolist()))
    assert told[-1] == (1000, 1000, "reading")
    assert room.COUNTED_IDS > 50


def test_a_fault_is_named(own):
    """A changed id fails the checksum."""
    with own.open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"\x09")
    with pytest.raises(TokenFileError, match="checksum of its token ids"):
        survey(TokenFile.open(own))
