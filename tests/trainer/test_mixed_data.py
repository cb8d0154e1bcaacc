from dataclasses import replace

import pytest

from torchledger.config import ConfigError
from torchledger.trainer.errors import ResumeRefused, SetupError
from torchledger.trainer.loop import resume_point, train
from torchledger.trainer.metrics import read_metrics
from torchledger.trainer.mixed_data import data_identity, mixture_words
from torchledger.trainer.prepare import prepare
from torchledger.trainer.resume import resume_changes
from torchledger.trainer.run_config import MixturePart, TokenFileConfig
from torchledger.trainer.setup import resolve
from torchledger.trainer.tokenfile import TokenFile
from torchledger.trainer.tokenwriter import TokenFileWriter
from torchledger.units import format_number

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def second_folder(tmp_path_factory):
    """Prepared data of another text, as bytes too."""
    source = tmp_path_factory.mktemp("second")
    for i in range(16):
        (source / f"{i}.txt").write_text("".join(f"{i} {j * j}; " for j in range(60)))
    return prepare(source, tmp_path_factory.mktemp("data2"), tokenizer="bytes", validation_fraction=0.2).folder


@pytest.fixture
def mixed(config, second_folder):
    """Three sequences of the first folder for one of the second."""
    return replace(config, mixture=(MixturePart(second_folder, 1.0),), data_weight=3.0)


def losses(folder):
    return [row["loss"] for row in read_metrics(folder.metrics_path) if row["kind"] == "step"]


def test_a_mixture_is_trained_on_and_told(mixed, config, second_folder, run):
    """Shares, passes over each part and what validates are told; the losses are not those of either part alone."""
    setup = resolve(mixed)
    words = " ".join(setup.assumptions)
    assert f"0.75 of the sequences are from {mixed.data}" in words
    assert f"0.25 of the sequences are from {second_folder}" in words
    assert f"validation is on that of {mixed.data} alone" in words
    # 8 steps of 4 sequences, a quarter of them from the second
    passes = 0.25 * 8 * 4 / ((TokenFile.open(second_folder / "train.tokens").num_tokens - 1) // 16)
    assert f"which the run passes over {format_number(passes)} times" in words
    tiny = mixture_words(setup.data, 3.0, setup.mixture, 1, 16)
    assert not any(" 0.00 times" in line or " 0 times" in line for line in tiny)
    assert setup.epochs == 0.75 * 8 * 4 / setup.num_windows
    together, alone = run(mixed)[0], run(config)[0]
    assert losses(together) != losses(alone)


def test_a_mixture_is_resumed_bit_for_bit(mixed, run):
    """Stopped after four of eight steps and resumed, a mixture has the losses of the uninterrupted run."""
    whole = losses(run(mixed)[0])
    half, _ = run(mixed)
    setup = resolve(mixed)
    checkpoint = min(half.checkpoints.iterdir(), key=lambda path: path.name)
    list(train(setup, half, checkpoint=checkpoint))
    assert losses(half) == whole


def test_weights_and_parts_decide_bits(mixed, run):
    """A resume with other shares is refused by name; weights in the same ratio are the same run."""
    folder, _ = run(mixed)
    checkpoint = resume_point(folder)
    same = replace(mixed, data_weight=6.0, mixture=(replace(mixed.mixture[0], weight=2.0),))
    assert resume_changes(checkpoint, resolve(same)) == ()
    with pytest.raises(ResumeRefused, match=r"mixture_shares: \[0.75, 0.25\] in the checkpoint, \[0.5, 0.5\] now"):
        resume_changes(checkpoint, resolve(replace(mixed, data_weight=1.0)))
    with pytest.raises(ResumeRefused, match="mixture_sha256"):
        resume_changes(checkpoint, resolve(replace(mixed, mixture=())))


def test_another_tokenizer_and_a_part_twice_are_refused(mixed, config, tmp_path):
    """Ids of two vocabularies cannot be mixed, and a part that is there twice is told."""
    with pytest.raises(SetupError, match="in the mixture twice"):
        resolve(replace(config, mixture=(MixturePart(config.data),)))
    with TokenFileWriter(tmp_path / "x", vocab_size=257, end_of_text_id=256, tokenizer_hash="other") as out:
        out.write([1] * 1000)
    with pytest.raises(SetupError, match="different tokenizers"):
        resolve(replace(config, mixture=(MixturePart(tmp_path / "x"),)))


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf"), float("nan")])
def test_weights_that_are_none_are_refused(config, weight, tmp_path):
    """A weight that is not above 0 and finite is refused, wherever it is given."""
    with pytest.raises(ConfigError, match="weight"):
        MixturePart(tmp_path, weight)
    with pytest.raises(ConfigError, match="data_weight"):
        replace(config, data_weight=weight)


def test_a_headerless_part_is_taken_at_its_word(mixed, tmp_path):
    """A token file of ids alone may be a part: its tokenizer is assumed to be the others', and its end is held out."""
    (tmp_path / "ids.bin").write_bytes(bytes([65, 0] * 4000))
    part = MixturePart(tmp_path / "ids.bin", 4.0)
    setup = resolve(replace(mixed, mixture=(*mixed.mixture, part), token_file=TokenFileConfig(dtype="uint16")))
    words = " ".join(setup.assumptions)
    assert "is not known: it is taken to be that of the other parts" in words
    assert "the end is held out" in words
    assert setup.mixture[1].data.train.num_tokens == 4000 - 4000 * 5 // 100


def test_without_a_mixture_the_identity_is_as_it_was(config):
    """One part, no document mask: hashes of ids and tokenizer alone, so that earlier checkpoints still match."""
    setup = resolve(config)
    assert dict(setup.identity.data) == {
        "train_sha256": setup.data.train_sha256,
        "tokenizer_hash": setup.data.tokenizer_hash,
    }


def test_where_documents_are_kept_apart_their_bounds_decide(mixed):
    """With a document mask the hash of each part's document offsets belongs to the run."""
    setup = resolve(mixed)
    rows = data_identity(setup.data, 3.0, setup.mixture, has_documents=True)
    files = (setup.data.train, setup.mixture[0].data.train)
    assert rows["documents"] == [TokenFile.open(file.path).header.offsets_sha256 for file in files]
