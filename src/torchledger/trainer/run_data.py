"""What a run trains and validates on: a folder that `prepare` wrote, or a token file of whoever's format."""

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from torchledger.trainer.entropy import unigram_counts, unigram_cross_entropy, unigram_entropy
from torchledger.trainer.errors import SetupError
from torchledger.trainer.prepared import PreparedData, load_prepared
from torchledger.trainer.run_config import TokenFileConfig
from torchledger.trainer.tokenfile import TokenFile
from torchledger.trainer.tokenizer import Tokenizer, load_tokenizer

__all__ = ["RunData", "open_run_data"]

VERIFIED_BYTES = 8 * 2**30  # 4.8 s of SHA-256 on the machine this was written on; a run takes longer than that
SAMPLED_BLOCKS = 1024
SAMPLED_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class RunData:
    """Training and validation tokens, and what is known of them.

    Attributes:
        place: the folder or token file as it was given.
        train: the training tokens.
        validation: the validation tokens.
        train_sha256: of the training ids; before `proven`, None for a file that does not say it.
        validation_sha256: of the validation ids, likewise.
        tokenizer_path: their tokenizer's file; None where it is not known, so that no text can be written.
        tokenizer_hash: its hash, or what the token file says it is.
        unigram_entropy_nats: of all tokens; None where they were not read through.
        validation_unigram_loss_nats: of the unigram model of the training tokens on the validation tokens; likewise.
        assumptions: what was decided without being asked.
        prepared: the folder's own page, where it is one.
    """

    place: Path
    train: TokenFile
    validation: TokenFile
    train_sha256: str | None
    validation_sha256: str | None
    tokenizer_path: Path | None
    tokenizer_hash: str | None
    unigram_entropy_nats: float | None
    validation_unigram_loss_nats: float | None
    assumptions: tuple[str, ...]
    prepared: PreparedData | None = None

    @property
    def vocab_size(self) -> int:
        """One more than the largest id that may occur in either part."""
        return max(self.train.vocab_size, self.validation.vocab_size)

    @property
    def payload_bytes(self) -> int:
        """Bytes of all token ids, which is what `proven` reads."""
        return sum(part.num_tokens * part.header.itemsize for part in (self.train, self.validation))

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer.

        Raises:
            TokenizerError: if it is gone or needs a library that is not installed.
            SetupError: if it is not known.
        """
        if self.tokenizer_path is None:
            raise SetupError(f"the tokenizer of {self.place} is not known; give it as token_file.tokenizer")
        return load_tokenizer(self.tokenizer_path)

    def proven(self) -> Self:
        """Read all ids, and know their checksums and entropy; of too many, only a sample, which `assumptions` says.

        Raises:
            PrepareError: the prepared folder is damaged.
            TokenFileError: an id beyond the vocabulary, or a file that is damaged.
        """
        if self.payload_bytes > VERIFIED_BYTES:
            return self._sampled()
        if self.prepared is not None:
            self.prepared.verify()
            return self
        train_sha256, validation_sha256 = self.train.verify(), self.validation.verify()
        counts = unigram_counts(self.train), unigram_counts(self.validation)
        if len(counts[0]) != len(counts[1]):  # two files that say their vocabularies themselves
            return replace(self, train_sha256=train_sha256, validation_sha256=validation_sha256)
        return replace(
            self,
            train_sha256=train_sha256,
            validation_sha256=validation_sha256,
            unigram_entropy_nats=unigram_entropy(counts[0] + counts[1]),
            validation_unigram_loss_nats=unigram_cross_entropy(counts[1], counts[0]),
        )

    def _sampled(self) -> Self:
        unread = f"the {self.payload_bytes:,} bytes of token ids were not read through; each id is checked when used"
        if self.prepared is not None:
            return replace(self, assumptions=(*self.assumptions, unread))
        sums = f"their checksums are of {SAMPLED_BLOCKS:,} blocks of {SAMPLED_BLOCK_BYTES:,} bytes, evenly spaced"
        return replace(
            self,
            train_sha256=_sample(self.train),
            validation_sha256=_sample(self.validation),
            assumptions=(*self.assumptions, unread, sums),
        )


def open_run_data(place: Path, told: TokenFileConfig, model_vocab_size: int) -> RunData:
    """Open a prepared folder or a token file; headers and sizes are read, ids are not (see `RunData.proven`).

    Args:
        place: the folder or file.
        told: what a token file cannot say itself; a prepared folder needs none of it.
        model_vocab_size: the vocabulary of ids whose file does not say it.

    Raises:
        PrepareError: the folder is not whole.
        TokenFileError: no token file, or not what was told of it.
        TokenizerError: a tokenizer that cannot be read.
        SetupError: a tokenizer that is not the tokens' own; validation tokens that are the training tokens.
    """
    if place.is_dir() or not place.exists():
        return _of_folder(place)
    train = _open(place, told, model_vocab_size)
    words: tuple[str, ...] = ()
    if told.validation is not None:
        validation = _open(told.validation, told, model_vocab_size)
        if validation.path.resolve() == train.path.resolve():
            raise SetupError(f"{place} cannot be both training and validation data; leave token_file.validation out")
    else:
        count = math.ceil(train.num_tokens * told.validation_fraction)
        train, validation = train.part(0, train.num_tokens - count), train.part(train.num_tokens - count, count)
        words = (f"the last {count:,} tokens of {place} ({told.validation_fraction:.3g} of it) validate",)
    path, tokenizer_hash = _tokenizer_of(train, validation, told)
    if path is None:
        words = (*words, f"the tokenizer of {place} is not known: no text is written")
    return RunData(
        place=place,
        train=train,
        validation=validation,
        train_sha256=None,
        validation_sha256=None,
        tokenizer_path=path,
        tokenizer_hash=tokenizer_hash,
        unigram_entropy_nats=None,
        validation_unigram_loss_nats=None,
        assumptions=words,
    )


def _of_folder(place: Path) -> RunData:
    data = load_prepared(place)
    return RunData(
        place=place,
        train=TokenFile.open(data.train_path),
        validation=TokenFile.open(data.validation_path),
        train_sha256=data.train.payload_sha256,
        validation_sha256=data.validation.payload_sha256,
        tokenizer_path=data.tokenizer_path,
        tokenizer_hash=data.tokenizer_hash,
        unigram_entropy_nats=data.unigram_entropy_nats,
        validation_unigram_loss_nats=data.validation_unigram_loss_nats,
        assumptions=data.assumptions,
        prepared=data,
    )


def _open(path: Path, told: TokenFileConfig, model_vocab_size: int) -> TokenFile:
    """A file of our own says all of it itself; one of another project's takes it from what is told."""
    if TokenFile.is_own(path):
        return TokenFile.open(path)
    return TokenFile.open(path, dtype=told.dtype, vocab_size=model_vocab_size, end_of_text_id=told.end_of_text_id)


def _tokenizer_of(train: TokenFile, validation: TokenFile, told: TokenFileConfig) -> tuple[Path | None, str | None]:
    """The tokenizer's file and hash: the one told, or the one beside a token file that was made with it."""
    hashes = {file.header.tokenizer_hash for file in (train, validation)} - {None}
    if len(hashes) > 1:
        raise SetupError(f"{train.path} and {validation.path} were made with different tokenizers")
    made_with = next(iter(hashes), None)
    if told.tokenizer is not None:
        found = load_tokenizer(told.tokenizer).hash
        if made_with not in {None, found}:
            raise SetupError(f"{told.tokenizer} is not the tokenizer that {train.path} was made with")
        return told.tokenizer, found
    beside = train.path.with_name("tokenizer.json")
    if made_with is not None and beside.is_file() and load_tokenizer(beside).hash == made_with:
        return beside, made_with
    return None, made_with


def _sample(token_file: TokenFile) -> str:
    """SHA-256 of the number of ids and of blocks of them, evenly spaced from the first to the last."""
    digest = hashlib.sha256(f"{token_file.num_tokens} {token_file.header.dtype} ".encode())
    length = min(SAMPLED_BLOCK_BYTES // token_file.header.itemsize, token_file.num_tokens)
    for i in range(SAMPLED_BLOCKS):
        start = (token_file.num_tokens - length) * i // (SAMPLED_BLOCKS - 1)
        digest.update(token_file.read(start, length).data)
    return digest.hexdigest()
