import json

import pytest

from torchledger.trainer.prepare import prepare
from torchledger.trainer.prepared import PreparedData, PrepareError, load_prepared
from torchledger.trainer.tokenizer import ByteTokenizer


@pytest.fixture
def data(tmp_path):
    source = tmp_path / "text"
    source.mkdir()
    for i in range(4):
        (source / f"{i}.txt").write_text(f"text number {i}\n" * 10)
    return prepare(source, tmp_path / "out", tokenizer="bytes")


def test_load_gives_what_prepare_gave(data):
    """What is loaded is what was prepared, and its tokenizer is at hand."""
    assert load_prepared(data.folder) == data
    assert data.tokenizer().hash == ByteTokenizer().hash == data.tokenizer_hash


def test_summary_is_readable_rows(data):
    """The summary page names its schema and says bytes per token, and reads back."""
    row = json.loads((data.folder / "prepare.json").read_text())
    assert row["schema"] == "torchledger.prepare/2"
    assert row["train"]["bytes_per_token"] == data.train.num_bytes / data.train.num_tokens
    assert PreparedData.from_dict(row, data.folder) == data


def test_nothing_prepared(tmp_path):
    """An empty folder and one that is not there say what to do."""
    for folder in (tmp_path, tmp_path / "no"):
        with pytest.raises(PrepareError, match=r"no prepared data in .* run prepare first"):
            load_prepared(folder)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"train": 3}'])
def test_damaged_summary(data, content):
    """A summary page that makes no sense is called damaged."""
    (data.folder / "prepare.json").write_text(content)
    with pytest.raises(PrepareError, match="damaged or of another version"):
        load_prepared(data.folder)


@pytest.mark.parametrize("name", ["train.tokens", "validation.tokens", "tokenizer.json"])
def test_a_missing_file_is_named(data, name):
    """A file that has gone is named."""
    (data.folder / name).unlink()
    with pytest.raises(PrepareError, match=f"not whole: .*{name}"):
        load_prepared(data.folder)


def test_a_foreign_file_is_noticed(data):
    """A token file of another preparation in this one's place is noticed."""
    (data.folder / "train.tokens").write_bytes((data.folder / "validation.tokens").read_bytes())
    with pytest.raises(PrepareError, match=r"train\.tokens is not the file"):
        load_prepared(data.folder)


def test_a_foreign_tokenizer_is_noticed(data):
    """A tokenizer that is not the one the tokens were made with is noticed, or refused as none."""
    (data.folder / "tokenizer.json").write_text('{"version": "1.0"}')
    with pytest.raises(PrepareError, match=r"tokenizer\.json"):
        load_prepared(data.folder)


def test_a_flipped_bit_is_found_by_reading_to_the_end(data):
    """An id that has become another one of the vocabulary is found by its file's checksum, and only by that."""
    content = bytearray(data.train_path.read_bytes())
    content[4096] ^= 1
    data.train_path.write_bytes(content)
    with pytest.raises(PrepareError, match=r"is damaged: .*train\.tokens .* checksum .* prepare it again"):
        load_prepared(data.folder).verify()


def test_a_summary_that_is_no_text_is_told_in_a_line(data):
    """Bytes that are not UTF-8 are told by their place, not with the whole page."""
    page = data.folder / "prepare.json"
    page.write_bytes(page.read_bytes().replace(b"train", b"tr\xffin", 1))
    with pytest.raises(PrepareError, match=r"byte \d+ is not UTF-8") as caught:
        load_prepared(data.folder)
    assert len(str(caught.value)) < 300
