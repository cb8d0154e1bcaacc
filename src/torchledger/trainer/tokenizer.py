"""Tokenizers: text to ids and back. Byte-level BPE (the `tokenizers` library), or plain bytes (no library)."""

import hashlib
import importlib.util
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol

from torchledger.trainer import durable

__all__ = [
    "END_OF_TEXT",
    "BpeTokenizer",
    "ByteTokenizer",
    "Tokenizer",
    "TokenizerError",
    "has_tokenizers",
    "load_tokenizer",
    "parse_tokenizer",
    "save_tokenizer",
    "train_bpe",
]

END_OF_TEXT = "<|endoftext|>"  # GPT-2's name for it

# What tokenizers of published models call the token that ends a document; the first that a vocabulary has is taken.
_END_OF_TEXT_NAMES = (END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<|im_end|>", "[EOS]")
_BYTES_KIND = "torchledger-bytes"
SMALLEST_BPE = 257  # 256 bytes and the end-of-text token


class TokenizerError(ValueError):
    """A tokenizer that cannot be trained, loaded or applied; the message says why."""


class Tokenizer(Protocol):
    """What everything else needs of a tokenizer."""

    @property
    def kind(self) -> Literal["bpe", "bytes"]:
        """Which of the two it is."""

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""

    @property
    def end_of_text_id(self) -> int:
        """The id that ends a document; no text encodes to it."""

    @property
    def hash(self) -> str:
        """SHA-256 of the tokenizer's file: equal means interchangeable."""

    def encode(self, text: str | bytes) -> list[int]:
        """Ids of a text, without an end-of-text id; a name of a special token in the text is plain text."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each, faster."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; bytes that are not UTF-8 (a character cut in two) become U+FFFD."""

    def to_json(self) -> str:
        """The content of the tokenizer's file."""


class ByteTokenizer:
    """One id per byte of UTF-8, and 256 for the end of a text.

    >>> ByteTokenizer().encode("aé")
    [97, 195, 169]
    """

    @property
    def kind(self) -> Literal["bpe", "bytes"]:
        """Always `bytes`."""
        return "bytes"

    @property
    def vocab_size(self) -> int:
        """256 bytes and the end-of-text token."""
        return 257

    @property
    def end_of_text_id(self) -> int:
        """The id after those of the bytes."""
        return 256

    @property
    def hash(self) -> str:
        """SHA-256 of the tokenizer's file."""
        return _hash(self.to_json())

    def encode(self, text: str | bytes) -> list[int]:
        """The bytes; any bytes will do."""
        return list(text.encode("utf-8") if isinstance(text, str) else text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids.

        Raises:
            TokenizerError: an id beyond 256.
        """
        _check_ids(ids, self.vocab_size)
        parts = [END_OF_TEXT.encode() if i == self.end_of_text_id else bytes((i,)) for i in ids]
        return b"".join(parts).decode("utf-8", errors="replace")

    def to_json(self) -> str:
        """The content of the tokenizer's file."""
        return json.dumps({"type": _BYTES_KIND, "vocab_size": self.vocab_size, "end_of_text": self.end_of_text_id})


class BpeTokenizer:
    """A `tokenizers` tokenizer.

    Args:
        text: the content of its tokenizer.json, as written by `to_json` or published with a model.

    Raises:
        TokenizerError: not a tokenizer's JSON, no end-of-text token in it, or the library is not installed.
    """

    def __init__(self, text: str) -> None:
        if not has_tokenizers():
            raise TokenizerError("this needs the `tokenizers` library: pip install tokenizers")
        import tokenizers

        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises no narrower class
            raise TokenizerError(f"not a tokenizer.json that the `tokenizers` library reads: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # text that spells a special token's name stays text
        self._text = text
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self._vocab_size = 1 + max(vocabulary.values(), default=-1)
        names = [name for name in _END_OF_TEXT_NAMES if name in vocabulary]
        if not names:
            raise TokenizerError(f"the tokenizer has no end-of-text token; looked for {', '.join(_END_OF_TEXT_NAMES)}")
        self._end_of_text_id: int = vocabulary[names[0]]

    @property
    def kind(self) -> Literal["bpe", "bytes"]:
        """Always `bpe`."""
        return "bpe"

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return self._vocab_size

    @property
    def end_of_text_id(self) -> int:
        """The id that ends a document."""
        return self._end_of_text_id

    @property
    def hash(self) -> str:
        """SHA-256 of the tokenizer's file."""
        return _hash(self._text)

    def encode(self, text: str | bytes) -> list[int]:
        """Ids of a text.

        Raises:
            TokenizerError: bytes that are not UTF-8.
        """
        if isinstance(text, bytes):
            try:
                text = text.decode("utf-8")
            except UnicodeDecodeError as error:
                raise TokenizerError(f"a BPE tokenizer encodes UTF-8 only: {error}") from error
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each, spread over the cores by the library."""
        return [one.ids for one in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids.

        Raises:
            TokenizerError: an id beyond the vocabulary.
        """
        _check_ids(ids, self.vocab_size)
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def to_json(self) -> str:
        """The content of the tokenizer's file."""
        return self._text


def has_tokenizers() -> bool:
    """Whether the `tokenizers` library is installed; without it only `ByteTokenizer` works."""
    return importlib.util.find_spec("tokenizers") is not None


def train_bpe(texts: Iterable[str], vocab_size: int) -> BpeTokenizer:
    """Train a byte-level BPE tokenizer (Sennrich et al. 2016, on GPT-2's bytes) on texts streamed once.

    Deterministic: the same texts in the same order give the same tokenizer. Few texts may give fewer than `vocab_size`
    tokens. The end-of-text token has id 0.

    Raises:
        TokenizerError: a vocabulary below 257, or the library is not installed.
    """
    if vocab_size < SMALLEST_BPE:
        raise TokenizerError(f"a byte-level vocabulary has at least {SMALLEST_BPE} tokens (256 bytes and end of text)")
    if not has_tokenizers():
        raise TokenizerError("training BPE needs the `tokenizers` library: pip install tokenizers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return BpeTokenizer(tokenizer.to_str(pretty=True))


def save_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    """Write a tokenizer's file, whole or not at all.

    Raises:
        OSError: a full disk or a folder that cannot be written to.
    """
    durable.write_text(path, tokenizer.to_json())


def load_tokenizer(path: Path | str) -> Tokenizer:
    """Read a tokenizer.json, ours or a published model's.

    Raises:
        TokenizerError: missing, unreadable, or not a tokenizer.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise TokenizerError(f"cannot read the tokenizer {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path} is not a tokenizer.json: {error}") from error
    try:
        return parse_tokenizer(text)
    except TokenizerError as error:
        raise TokenizerError(f"{path}: {error}") from error


def parse_tokenizer(text: str) -> Tokenizer:
    """The tokenizer whose file has this content.

    Raises:
        TokenizerError: it is none, or needs a library that is not installed.
    """
    try:
        row = json.loads(text)
    except ValueError as error:
        raise TokenizerError(f"is not a tokenizer.json: {error}") from error
    if isinstance(row, dict) and row.get("type") == _BYTES_KIND:
        return ByteTokenizer()
    return BpeTokenizer(text)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _check_ids(ids: Sequence[int], vocab_size: int) -> None:
    for position, i in enumerate(ids):
        if not 0 <= i < vocab_size:
            raise TokenizerError(f"id {i} at position {position} is outside the vocabulary of {vocab_size}")
