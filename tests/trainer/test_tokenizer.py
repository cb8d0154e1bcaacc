import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.trainer import tokenizer as room
from torchledger.trainer.tokenizer import (
    END_OF_TEXT,
    BpeTokenizer,
    ByteTokenizer,
    TokenizerError,
    load_tokenizer,
    save_tokenizer,
    train_bpe,
)

TEXTS = ["def f(x):\n    return x + 1\n\n" * 20, "class A:\n    pass\n" * 20, "für Grüße ☃\n" * 5]

bpe_only = pytest.mark.skipif(not room.has_tokenizers(), reason="needs the tokenizers library")


@pytest.fixture(scope="module", params=["bytes", pytest.param("bpe", marks=bpe_only)])
def tokenizer(request):
    return ByteTokenizer() if request.param == "bytes" else train_bpe(TEXTS, 300)


@given(text=st.text())
def test_round_trip(tokenizer, text):
    """Any text encodes to ids below the vocabulary, never to the end of text, and decodes to itself."""
    ids = tokenizer.encode(text)
    assert all(0 <= i < tokenizer.vocab_size and i != tokenizer.end_of_text_id for i in ids)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode(text.encode()) == ids


@given(texts=st.lists(st.text(max_size=20), max_size=5))
def test_batches_encode_alike(tokenizer, texts):
    """Encoding many texts at once gives what encoding each gives."""
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


def test_special_names_in_text_are_text(tokenizer):
    """A text that spells the end-of-text token's name is encoded as text; the token itself is shown by name."""
    ids = tokenizer.encode(f"a{END_OF_TEXT}b")
    assert tokenizer.end_of_text_id not in ids
    assert tokenizer.decode(ids) == f"a{END_OF_TEXT}b"
    assert tokenizer.decode([tokenizer.end_of_text_id]) == END_OF_TEXT


def test_half_a_character_decodes(tokenizer):
    """Ids that end within a character decode to the replacement sign, not to an error."""
    assert tokenizer.decode(tokenizer.encode("☠")[:1]).startswith("\ufffd")


def test_save_and_load(tokenizer, tmp_path):
    """A tokenizer saved and loaded is the same: hash, vocabulary and ids."""
    save_tokenizer(tokenizer, tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert (loaded.hash, loaded.kind) == (tokenizer.hash, tokenizer.kind)
    assert (loaded.vocab_size, loaded.end_of_text_id) == (tokenizer.vocab_size, tokenizer.end_of_text_id)
    assert loaded.encode("def f") == tokenizer.encode("def f")


@pytest.mark.parametrize("bad", [-1, 100_000])
def test_unknown_ids_are_named(tokenizer, bad):
    """Decoding an id that does not exist names it and its position."""
    with pytest.raises(TokenizerError, match=f"id {bad} at position 1"):
        tokenizer.decode([1, bad])


def test_bytes_need_no_utf8():
    """The byte tokenizer takes any bytes."""
    assert ByteTokenizer().encode(b"\xff\x00") == [255, 0]


@bpe_only
def test_bpe_wants_utf8():
    """A BPE tokenizer refuses bytes that are no text."""
    with pytest.raises(TokenizerError, match="UTF-8"):
        train_bpe(TEXTS, 300).encode(b"\xff\x00")


@bpe_only
def test_training_is_deterministic():
    """The same texts give the same tokenizer, in this process and in another, whose hashes are seeded otherwise."""
    here = train_bpe(TEXTS, 290).hash
    assert train_bpe(TEXTS, 290).hash == here
    code = f"from torchledger.trainer.tokenizer import train_bpe; print(train_bpe({TEXTS!r}, 290).hash)"
    process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert process.stdout.strip() == here


@bpe_only
def test_bpe_shortens_what_it_was_trained_on():
    """Merges learnt from a text make it shorter than its bytes."""
    tokenizer = train_bpe(TEXTS, 300)
    assert tokenizer.vocab_size <= 300
    assert len(tokenizer.encode(TEXTS[0])) < len(TEXTS[0]) / 2


@bpe_only
def test_forking_after_training_is_quiet():
    """A process that forks after training and encoding hears no warning."""
    code = (
        "import os; from torchledger.trainer.tokenizer import train_bpe\n"
        "t = train_bpe(['a b c'] * 9, 300); t.encode_batch(['a', 'b'])\n"
        "pid = os.fork()\n"
        "if pid == 0: t.encode_batch(['a', 'b']); os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0"
    )
    process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert process.stdout + process.stderr == ""


def test_smallest_vocabulary():
    """A byte-level vocabulary cannot be smaller than the bytes and the end of text."""
    with pytest.raises(TokenizerError, match="at least 257"):
        train_bpe(TEXTS, 256)


@bpe_only
def test_published_tokenizers_end_of_text(tmp_path):
    """A tokenizer whose end of text has another well-known name is taken; one without any is refused."""
    row = json.loads(train_bpe(TEXTS, 300).to_json().replace(END_OF_TEXT, "</s>"))
    (tmp_path / "named.json").write_text(json.dumps(row))
    assert load_tokenizer(tmp_path / "named.json").end_of_text_id == 0
    (tmp_path / "unnamed.json").write_text(json.dumps(row).replace("</s>", "[something]"))
    with pytest.raises(TokenizerError, match="no end-of-text token"):
        load_tokenizer(tmp_path / "unnamed.json")


@bpe_only
def test_truncation_and_padding_of_a_published_tokenizer_are_off():
    """Limits that a model's authors saved with their tokenizer do not cut or fill a corpus."""
    row = json.loads(train_bpe(TEXTS, 300).to_json())
    row["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    tokenizer = BpeTokenizer(json.dumps(row))
    assert tokenizer.decode(tokenizer.encode("return x + 1")) == "return x + 1"


@pytest.mark.parametrize("content", ["", "no json", "[1]", "{}", '{"model": 3}'])
@bpe_only
def test_foreign_files_are_refused(tmp_path, content):
    """A file that is no tokenizer is refused under its name."""
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(TokenizerError, match=r"t\.json"):
        load_tokenizer(tmp_path / "t.json")


def test_missing_file(tmp_path):
    """A missing tokenizer is a clear error."""
    with pytest.raises(TokenizerError, match="cannot read the tokenizer"):
        load_tokenizer(tmp_path / "t.json")


def test_without_the_library(monkeypatch):
    """Without the library, training and loading BPE say what to install; bytes work."""
    monkeypatch.setattr(room, "has_tokenizers", lambda: False)
    with pytest.raises(TokenizerError, match="pip install tokenizers"):
        train_bpe(TEXTS, 300)
    with pytest.raises(TokenizerError, match="pip install tokenizers"):
        BpeTokenizer("{}")
    assert ByteTokenizer().encode("a") == [97]
