import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.trainer.entropy import unigram_counts, unigram_cross_entropy, unigram_entropy
from torchledger.trainer.tokenfile import TokenFile, TokenFileError
from torchledger.trainer.tokenwriter import TokenFileWriter


def write(path, ids, vocab_size=4):
    with TokenFileWriter(path, vocab_size=vocab_size, end_of_text_id=None, tokenizer_hash="hash") as out:
        out.write(ids)
    return TokenFile.open(path)


def test_by_hand(tmp_path):
    """Of 8 tokens, four, two, one and one: 1/2 ln 2 + 1/4 ln 4 + 2 · 1/8 ln 8 = 1.75 ln 2."""
    token_file = write(tmp_path / "x", [0, 0, 0, 0, 1, 1, 2, 3])
    assert unigram_counts(token_file).tolist() == [4, 2, 1, 1]
    assert unigram_entropy(token_file) == pytest.approx(1.75 * math.log(2), abs=1e-15)


def test_one_kind_of_token(tmp_path):
    """A file that repeats one token has no entropy, and the zero has no sign."""
    entropy = unigram_entropy(write(tmp_path / "x", [3, 3, 3]))
    assert entropy == 0
    assert math.copysign(1, entropy) == 1


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50).filter(any))
def test_bounds(counts):
    """Entropy lies between 0 and the logarithm of the number of kinds seen."""
    entropy = unigram_entropy(np.array(counts))
    assert 0 <= entropy <= math.log(sum(count > 0 for count in counts)) + 1e-12


def test_cross_entropy_by_hand():
    """Counts (3, 1) smoothed by one are (4/6, 2/6); a data set of halves costs (ln 3/2 + ln 3) / 2."""
    loss = unigram_cross_entropy(np.array([1, 1]), np.array([3, 1]))
    assert loss == pytest.approx((math.log(3 / 2) + math.log(3)) / 2, abs=1e-15)


def test_an_unseen_token_costs_finitely():
    """A token the model never saw costs ln((total + vocabulary) / 1)."""
    assert unigram_cross_entropy(np.array([0, 5]), np.array([8, 0])) == pytest.approx(math.log(8 + 2), abs=1e-15)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1).filter(lambda p: any(a for a, _ in p)))
def test_cross_entropy_is_at_least_entropy(pairs):
    """No model predicts data better than the data's own frequencies (Gibbs' inequality)."""
    data, model = (np.array(column) for column in zip(*pairs, strict=True))
    assert unigram_cross_entropy(data, model) >= unigram_entropy(data) - 1e-12


def test_no_tokens(tmp_path):
    """No tokens have no entropy to speak of."""
    with pytest.raises(TokenFileError, match="undefined"):
        unigram_entropy(write(tmp_path / "x", []))
    with pytest.raises(TokenFileError, match="undefined"):
        unigram_cross_entropy(np.zeros(2, np.int64), np.ones(2, np.int64))


def test_vocabularies_must_match():
    """Counts over different vocabularies are not compared."""
    with pytest.raises(TokenFileError, match="2 and 3 ids"):
        unigram_cross_entropy(np.ones(2, np.int64), np.ones(3, np.int64))


def test_an_id_beyond_the_vocabulary(tmp_path):
    """A damaged file is refused with the position of the id, instead of counted."""
    token_file = write(tmp_path / "x", [0, 1, 2])
    with token_file.path.open("r+b") as stream:
        stream.seek(token_file.payload_start + 2)
        stream.write(b"\x09\x00")
    with pytest.raises(TokenFileError, match="id 9 at position 1"):
        unigram_counts(token_file)
