"""Prepare: text becomes a tokenizer and two token files, streamed in bounded memory, once for the same inputs."""

import hashlib
import json
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from torchledger.trainer import durable
from torchledger.trainer.entropy import unigram_counts, unigram_cross_entropy, unigram_entropy
from torchledger.trainer.pieces import Piece, pieces
from torchledger.trainer.prepared import (
    SOURCES_NAME,
    SUMMARY_NAME,
    TOKENIZER_NAME,
    TRAIN_NAME,
    VALIDATION_NAME,
    PreparedData,
    PreparedPart,
    PrepareError,
    load_prepared,
)
from torchledger.trainer.sources import Progress, SourceError, Sources, find_sources
from torchledger.trainer.split import Split, choose_split
from torchledger.trainer.tokenfile import TokenFile, TokenFileError
from torchledger.trainer.tokenizer import (
    SMALLEST_BPE,
    ByteTokenizer,
    Tokenizer,
    TokenizerError,
    has_tokenizers,
    load_tokenizer,
    save_tokenizer,
    train_bpe,
)
from torchledger.trainer.tokenwriter import TokenFileWriter

__all__ = ["DEFAULT_VOCAB_SIZE", "prepare"]

DEFAULT_VOCAB_SIZE = 4096
RECIPE = 1  # raised whenever the same inputs would give other tokens

GROUP_BYTES = 1 << 20  # text encoded at once
GROUP_PIECES = 512
TRAINING_BYTES = 1 << 28  # a tokenizer of a few thousand tokens learns nothing more from more text than this


@dataclass(frozen=True, slots=True)
class _Choice:
    """How to come by the tokenizer: `published` is one loaded already, else train BPE or take bytes."""

    kind: str
    vocab_size: int
    published: Tokenizer | None
    assumptions: tuple[str, ...]


def prepare(
    source: Path | str,
    out_dir: Path | str,
    *,
    vocab_size: int = DEFAULT_VOCAB_SIZE,
    validation_fraction: float = 0.05,
    tokenizer: Path | str = "bpe",
    seed: int = 0,
    progress: Progress | None = None,
) -> PreparedData:
    """Turn text into `train.tokens`, `validation.tokens` and `tokenizer.json` in `out_dir`.

    `prepare.json` and `sources.json` beside them say what they are. An identical preparation found there is reused, and
    another one is replaced.

    Args:
        source: `stdlib`, a folder of text files, or a text file (see `find_sources`).
        out_dir: made if it is not there.
        vocab_size: of a BPE tokenizer to train, at most: little text gives fewer tokens.
        validation_fraction: share of the files (of a single file: of its documents, or of its end) for validation.
        tokenizer: `bpe` trains one on the training part; `bytes` takes bytes; else the path of a tokenizer.json.
            Without the `tokenizers` library `bpe` becomes `bytes`, which `assumptions` then says.
        seed: of the split.
        progress: called with (bytes done, bytes in all, what is being done: `reading`, `training the tokenizer` or
            `encoding`), to draw a bar.

    Raises:
        PrepareError: no text, too little text, a fraction or vocabulary out of range, a folder that cannot be written
            to, a full disk. Files already in `out_dir` are replaced only when the new ones are whole.
    """
    if not 0 < validation_fraction < 1:
        raise PrepareError(f"the validation fraction must lie between 0 and 1, got {validation_fraction}")
    folder = Path(out_dir)
    try:
        _check_apart(source, folder)
        choice = _choose_tokenizer(tokenizer, vocab_size)
        sources = find_sources(source, exclude=folder, progress=progress)
        inputs_hash = _hash_inputs(sources, choice, validation_fraction, seed)
        reused = _find_earlier(folder, inputs_hash)
        if reused is not None:
            return reused
        folder.mkdir(parents=True, exist_ok=True)
        split = choose_split(sources, validation_fraction, seed)
        return _prepare(str(source), sources, split, choice, folder=folder, inputs_hash=inputs_hash, progress=progress)
    except (SourceError, TokenFileError, TokenizerError) as error:
        raise PrepareError(str(error)) from error
    except OSError as error:
        raise PrepareError(f"cannot write to {folder}: {error.strerror}") from error


def _check_apart(source: Path | str, folder: Path) -> None:
    """Refuse to write the result over its source, or into it at the top, where the next run would read it as text."""
    ours = {
        folder,
        *(folder / name for name in (SOURCES_NAME, SUMMARY_NAME, TOKENIZER_NAME, TRAIN_NAME, VALIDATION_NAME)),
    }
    if Path(source).resolve() in {path.resolve() for path in ours}:
        raise PrepareError(f"the result would overwrite the source {source}; choose another folder for it")


def _choose_tokenizer(tokenizer: Path | str, vocab_size: int) -> _Choice:
    if tokenizer == "bytes":
        return _Choice("bytes", ByteTokenizer().vocab_size, ByteTokenizer(), ())
    if tokenizer != "bpe":
        published = load_tokenizer(tokenizer)
        return _Choice(published.kind, published.vocab_size, published, ())
    if vocab_size < SMALLEST_BPE:
        raise PrepareError(f"a byte-level vocabulary has at least {SMALLEST_BPE} tokens, asked for {vocab_size}")
    if has_tokenizers():
        return _Choice("bpe", vocab_size, None, ())
    bytes_tokenizer = ByteTokenizer()
    words = f"the tokenizers library is not installed: bytes instead of BPE, {bytes_tokenizer.vocab_size} tokens"
    return _Choice("bytes", bytes_tokenizer.vocab_size, bytes_tokenizer, (words,))


def _hash_inputs(sources: Sources, choice: _Choice, validation_fraction: float, seed: int) -> str:
    maker = choice.published.hash if choice.published is not None else f"tokenizers {metadata.version('tokenizers')}"
    inputs = [RECIPE, sources.kind, sources.sha256, choice.kind, choice.vocab_size, maker, validation_fraction, seed]
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()


def _find_earlier(folder: Path, inputs_hash: str) -> PreparedData | None:
    try:
        earlier = load_prepared(folder)
        if earlier.inputs_hash != inputs_hash:
            return None
        earlier.verify()
    except PrepareError:  # nothing there, not whole, or damaged: it is made anew
        return None
    return replace(earlier, reused=True)


def _prepare(
    source: str,
    sources: Sources,
    split: Split,
    choice: _Choice,
    *,
    folder: Path,
    inputs_hash: str,
    progress: Progress | None,
) -> PreparedData:
    tokenizer, assumptions = _make_tokenizer(sources, split, choice, progress)
    sizes = _write_tokens(sources, split, tokenizer, folder, progress)
    rows = {
        "schema": "torchledger.sources/1",
        "kind": sources.kind,
        "root": str(sources.root),
        "sha256": sources.sha256,
        "files": [
            {
                "name": f.name,
                "num_bytes": f.num_bytes,
                "sha256": f.sha256,
                "validation": f.name in split.validation_files,
            }
            for f in sources.files
        ],
        "skipped": [{"name": f.name, "reason": f.reason} for f in sources.skipped],
    }
    durable.write_text(folder / SOURCES_NAME, json.dumps(rows, indent=1) + "\n")
    train, train_counts = _describe(folder / TRAIN_NAME, sizes[0])
    validation, validation_counts = _describe(folder / VALIDATION_NAME, sizes[1])
    data = PreparedData(
        folder=folder,
        source=source,
        split=split.rule,
        train=train,
        validation=validation,
        tokenizer_kind=tokenizer.kind,
        tokenizer_hash=tokenizer.hash,
        vocab_size=tokenizer.vocab_size,
        end_of_text_id=tokenizer.end_of_text_id,
        unigram_entropy_nats=unigram_entropy(train_counts + validation_counts),
        validation_unigram_loss_nats=unigram_cross_entropy(validation_counts, train_counts),
        num_files=len(sources.files),
        num_skipped=len(sources.skipped),
        sources_sha256=sources.sha256,
        inputs_hash=inputs_hash,
        assumptions=assumptions,
        versions=_versions(),
    )
    data.save()
    return data


def _make_tokenizer(
    sources: Sources, split: Split, choice: _Choice, progress: Progress | None
) -> tuple[Tokenizer, tuple[str, ...]]:
    """The tokenizer, and what was decided on the way. It is trained on the training part alone."""
    if choice.published is not None:
        return choice.published, choice.assumptions
    assumptions = list(choice.assumptions)
    every = -(-sources.num_bytes // TRAINING_BYTES)
    if every > 1:
        assumptions.append(f"the tokenizer was trained on one megabyte of text in {every}")
    training = (piece for piece in _reported(pieces(sources, split), sources, progress, "training the tokenizer"))
    texts = (piece.text for i, piece in enumerate(training) if i % every == 0 and not piece.validation)
    # Each merge needs text of its own; the library aborts where it cannot set memory aside for all that is asked for.
    tokenizer = train_bpe(texts, min(choice.vocab_size, SMALLEST_BPE + sources.num_bytes))
    if tokenizer.vocab_size < choice.vocab_size:
        assumptions.append(f"the text gave {tokenizer.vocab_size} tokens, fewer than the {choice.vocab_size} asked for")
    return tokenizer, tuple(assumptions)


def _write_tokens(
    sources: Sources, split: Split, tokenizer: Tokenizer, folder: Path, progress: Progress | None
) -> tuple[int, int]:
    """Write both token files and the tokenizer; returns the bytes of text in each."""
    sizes = [0, 0]

    def writer(name: str) -> TokenFileWriter:
        return TokenFileWriter(
            folder / name,
            vocab_size=tokenizer.vocab_size,
            end_of_text_id=tokenizer.end_of_text_id,
            tokenizer_hash=tokenizer.hash,
        )

    with writer(TRAIN_NAME) as train, writer(VALIDATION_NAME) as validation:
        writers = (train, validation)
        for group in _groups(_reported(pieces(sources, split), sources, progress, "encoding")):
            for piece, ids in zip(group, tokenizer.encode_batch([piece.text for piece in group]), strict=True):
                sizes[piece.validation] += piece.num_bytes
                writers[piece.validation].write(np.asarray(ids, np.int64))
                if piece.ends_document:
                    writers[piece.validation].end_document()
        for part, words in zip(writers, ("training", "validation"), strict=True):
            if part.num_tokens == 0:
                raise PrepareError(f"too little text: none of its {sources.num_bytes} bytes is left for {words}")
        # From here until the summary is written anew, the folder is known not to be whole.
        (folder / SUMMARY_NAME).unlink(missing_ok=True)
        save_tokenizer(tokenizer, folder / TOKENIZER_NAME)
    return sizes[0], sizes[1]


def _describe(path: Path, num_bytes: int) -> tuple[PreparedPart, Int64[np.ndarray, " vocabulary"]]:
    token_file = TokenFile.open(path)
    counts, header = unigram_counts(token_file), token_file.header
    assert header.num_documents is not None
    assert header.payload_sha256 is not None
    part = PreparedPart(
        header.num_tokens, header.num_documents, num_bytes, unigram_entropy(counts), header.payload_sha256
    )
    return part, counts


def _groups(stream: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces together until they are worth spreading over the cores."""
    group: list[Piece] = []
    size = 0
    for piece in stream:
        group.append(piece)
        size += piece.num_bytes
        if size >= GROUP_BYTES or len(group) >= GROUP_PIECES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _reported(stream: Iterable[Piece], sources: Sources, progress: Progress | None, what: str) -> Iterator[Piece]:
    done = 0
    for piece in stream:
        yield piece
        done += piece.num_bytes
        if progress is not None and piece.num_bytes:
            progress(done, sources.num_bytes, what)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    for name in ("torchledger", "tokenizers"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # run from a source tree, or the extra is not installed
            continue
    return versions
