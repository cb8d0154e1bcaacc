import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from torchledger.trainer import run_data as room
from torchledger.trainer.batches import Batches
from torchledger.trainer.entropy import unigram_counts, unigram_entropy
from torchledger.trainer.errors import SetupError
from torchledger.trainer.events import Step
from torchledger.trainer.loop import new_run, train
from torchledger.trainer.run_config import SampleConfig, TokenFileConfig
from torchledger.trainer.run_data import open_run_data
from torchledger.trainer.setup import resolve
from torchledger.trainer.tokenfile import TokenFile, TokenFileError

pytestmark = pytest.mark.usefixtures("one_thread")


def losses(setup, folder):
    return [event.loss for event in train(setup, new_run(setup, folder)) if isinstance(event, Step)]


@pytest.fixture
def ids(data_folder):
    """The ids of the prepared training file."""
    token_file = TokenFile.open(data_folder / "train.tokens")
    return token_file.read(0, token_file.num_tokens)


def test_a_prepared_folder_is_what_it_says(data_folder):
    """Parts, checksums, tokenizer and entropies are the folder's own."""
    data = open_run_data(data_folder, TokenFileConfig(), 257).proven()
    assert data.prepared is not None
    assert data.train_sha256 == data.prepared.train.payload_sha256 == data.train.verify()
    assert (data.tokenizer_hash, data.vocab_size) == (data.prepared.tokenizer_hash, 257)
    assert data.unigram_entropy_nats == data.prepared.unigram_entropy_nats


@pytest.mark.parametrize("dtype", ["uint16", "int32", "int64"])
def test_a_headerless_file_is_cut_in_two(tmp_path, ids, dtype):
    """The first tokens train and the last ceil(5 %) validate; checksum and entropy are those of the ids."""
    path = tmp_path / "train.bin"
    path.write_bytes(ids.astype(dtype).tobytes())
    data = open_run_data(path, TokenFileConfig(dtype=dtype), 300).proven()
    count = math.ceil(len(ids) * 0.05)
    assert (data.train.num_tokens, data.validation.num_tokens) == (len(ids) - count, count)
    assert data.validation.read(0, count).tolist() == ids[-count:].tolist()
    assert data.train_sha256 == hashlib.sha256(ids[:-count].astype(dtype).tobytes()).hexdigest()
    assert data.unigram_entropy_nats == pytest.approx(unigram_entropy(np.bincount(ids, minlength=300)), abs=1e-12)
    assert (data.vocab_size, data.tokenizer_path, data.tokenizer_hash) == (300, None, None)
    assert any(f"the last {count:,} tokens" in line for line in data.assumptions)
    assert any("no text is written" in line for line in data.assumptions)


def test_the_same_tokens_train_alike_in_every_format(config, data_folder, tmp_path, ids):
    """A prepared folder, its ids headerless, as NumPy and as a token file alone give the same losses bit for bit."""
    validation = data_folder / "validation.tokens"
    (tmp_path / "train.bin").write_bytes(ids.tobytes())
    np.save(tmp_path / "train.npy", ids.astype(np.int32))
    expected = losses(resolve(config), tmp_path / "folder")
    assert len(expected) == 8
    for path, dtype in (("train.bin", "uint16"), ("train.npy", None), (data_folder / "train.tokens", None)):
        told = TokenFileConfig(dtype=dtype, validation=validation)
        setup = resolve(replace(config, data=tmp_path / path, token_file=told))
        assert losses(setup, tmp_path / f"run-{str(path)[-3:]}") == expected


def test_the_tokenizer_beside_a_token_file_of_ours_is_its_own(data_folder):
    """A file of a prepared folder finds its tokenizer by its hash, and any other one is refused."""
    path = data_folder / "train.tokens"
    data = open_run_data(path, TokenFileConfig(), 257)
    assert data.tokenizer_path == data_folder / "tokenizer.json"
    assert data.tokenizer().hash == data.tokenizer_hash == TokenFile.open(path).header.tokenizer_hash


def test_a_foreign_tokenizer_is_refused(data_folder, tmp_path):
    """A tokenizer whose hash is not the one in the header did not make these tokens."""
    from torchledger.trainer.tokenizer import has_tokenizers, save_tokenizer, train_bpe

    if not has_tokenizers():
        pytest.skip("needs the tokenizers library")
    save_tokenizer(train_bpe(["text"], 258), tmp_path / "other.json")
    with pytest.raises(SetupError, match=r"other\.json is not the tokenizer"):
        open_run_data(data_folder / "train.tokens", TokenFileConfig(tokenizer=tmp_path / "other.json"), 257)


def test_a_tokenizer_that_is_told_writes_text(data_folder, tmp_path, ids, config):
    """With a tokenizer a headerless file's run writes its sample; without one it asks for none."""
    path = tmp_path / "train.bin"
    path.write_bytes(ids.tobytes())
    config = replace(config, data=path, sample=SampleConfig(length=5))
    without = resolve(replace(config, token_file=TokenFileConfig(dtype="uint16")))
    assert without.config.sample.length == 0
    told = TokenFileConfig(dtype="uint16", tokenizer=data_folder / "tokenizer.json")
    assert resolve(replace(config, token_file=told)).config.sample.length == 5
    with pytest.raises(SetupError, match=r"not known; give it as token_file\.tokenizer"):
        without.data.tokenizer()


def test_mistakes_are_refused_before_anything_is_read(config, tmp_path, ids, tiny):
    """No type, ids beyond the model's vocabulary, training data as validation data, too few tokens."""
    path = tmp_path / "train.bin"
    path.write_bytes(ids.tobytes())
    told = TokenFileConfig(dtype="uint16")
    for error, message, changes in [
        (TokenFileError, "say their type", {"token_file": TokenFileConfig()}),
        (TokenFileError, "beyond its vocabulary of 100", {"token_file": told, "model": replace(tiny, vocab_size=100)}),
        (SetupError, "cannot be both", {"token_file": replace(told, validation=path)}),
        (SetupError, "too few for one sequence", {"token_file": replace(told, validation_fraction=1e-4)}),
    ]:
        with pytest.raises(error, match=message):
            resolve(replace(config, data=path, **changes))


def test_huge_files_are_sampled(tmp_path, ids, monkeypatch):
    """Beyond the limit only blocks are read, which is said; equal files have equal sums, a changed end another."""
    path = tmp_path / "train.bin"
    path.write_bytes(ids.tobytes())
    monkeypatch.setattr(room, "VERIFIED_BYTES", 0)
    monkeypatch.setattr(room, "SAMPLED_BLOCK_BYTES", 4)
    told = TokenFileConfig(dtype="uint16")
    data = open_run_data(path, told, 300).proven()
    assert data.unigram_entropy_nats is None
    assert any("were not read through" in line for line in data.assumptions)
    assert any("checksums are of 1,024 blocks of 4 bytes" in line for line in data.assumptions)
    assert data == open_run_data(path, told, 300).proven()
    path.write_bytes(np.append(ids[:-1], ids[-1] ^ 1).tobytes())
    changed = open_run_data(path, told, 300).proven()
    assert changed.train_sha256 == data.train_sha256
    assert changed.validation_sha256 != data.validation_sha256


def test_batches_of_a_part_stay_within_it(tmp_path):
    """Windows of a part are counted from its beginning: no token of the rest is ever in a batch."""
    path = tmp_path / "x.bin"
    path.write_bytes(np.arange(100, dtype=np.uint16).tobytes())
    part = TokenFile.open(path, dtype="uint16", vocab_size=100).part(40, 21)
    with Batches(part, 5, 4, seed=0) as batches:
        x, y = batches.batch(0)
    assert sorted(x.flatten().tolist()) == list(range(40, 60))
    assert torch.equal(y, x + 1)


def test_counts_of_a_part_are_its_own(tmp_path):
    """Of ids 1 1 2 2 2, the last three are all 2."""
    path = tmp_path / "x.bin"
    path.write_bytes(np.array([1, 1, 2, 2, 2], np.uint8).tobytes())
    token_file = TokenFile.open(path, dtype="uint8", vocab_size=3)
    assert unigram_counts(token_file.part(2, 3)).tolist() == [0, 0, 3]
