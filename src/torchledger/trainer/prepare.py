"""Prepare: text becomes a tokenizer and two token files, streamed in bounded memory, once for the same inputs."""

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from torchledger.trainer import durable
from torchledger.trainer.encoding import encode_groups, groups
from torchledger.trainer.entropy import unigram_counts, unigram_cross_entropy, unigram_entropy
from torchledger.trainer.locks import Taken, alone
from torchledger.trainer.occupied import require_free
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
    parse_tokenizer,
    save_tokenizer,
    train_bpe,
)
from torchledger.trainer.tokenwriter import TokenFileWriter
from torchledger.trainer.unfinished import Journal, Unfinished

__all__ = ["DEFAULT_VOCAB_SIZE", "prepare"]

DEFAULT_VOCAB_SIZE = 4096
LOCK_NAME = ".prepare.lock"
RECIPE = 2  # raised whenever the same inputs would give other tokens

TRAINING_BYTES = 1 << 28  # a tokenizer of a few thousand tokens learns nothing more from more text than this
COMPRESSION = 64  # bytes of text that a byte of a table may stand for
ALONE_BYTES = 1 << 26  # so much text is encoded in this process sooner than others are started


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
    text_field: str = "text",
    num_workers: int | None = None,
    replacing: bool = False,
    progress: Progress | None = None,
) -> PreparedData:
    """Turn text into `train.tokens`, `validation.tokens` and `tokenizer.json` in `out_dir`.

    `prepare.json` and `sources.json` beside them say what they are. An identical preparation is reused; another one, or
    something else of these names, is replaced only if told. One that was killed goes on where it last wrote down how
    far it was; the result is the same to the byte, as it is for any number of workers.

    Memory: the longest record (see `records`), a few megabytes of text a worker, and 8 bytes a document.

    Args:
        source: `stdlib`, a folder, or a file: text, JSON lines, Parquet, Arrow, gzip, zstd (see `find_sources`).
        out_dir: made if it is not there.
        vocab_size: of a BPE tokenizer to train, at most: little text gives fewer tokens.
        validation_fraction: share of the files (of a single file: of its documents, or of its end) for validation.
        tokenizer: `bpe` trains one on the training part; `bytes` takes bytes; else the path of a tokenizer.json.
            Without the `tokenizers` library `bpe` becomes `bytes`, which `assumptions` then says.
        seed: of the split.
        text_field: the field of JSON lines, or the column of a table, that has the text.
        num_workers: processes that encode; nothing takes one a core, and little text this process alone.
        replacing: whether what else stands in `out_dir` under the names of these files is replaced.
        progress: called with (bytes done, bytes in all, `reading`, `training the tokenizer` or `encoding`).

    Raises:
        PrepareError: no text, too little of it, a fraction or vocabulary out of range, a full disk; a folder that has
            other data in it, is prepared by another process, or cannot be written to. What is there stays till then.
    """
    _require_possible(validation_fraction, num_workers)
    folder = Path(out_dir)
    try:
        _check_apart(source, folder)
        choice = _choose_tokenizer(tokenizer, vocab_size)
        sources = find_sources(source, exclude=folder, progress=progress)
        inputs_hash = _hash_inputs(sources, choice, validation_fraction, seed, text_field)
        reused = _find_earlier(folder, inputs_hash, sources, replacing)
        if reused is not None:
            return reused
        folder.mkdir(parents=True, exist_ok=True)
        with _alone_in(folder):
            reused = _find_earlier(folder, inputs_hash, sources, replacing)  # another may have finished it meanwhile
            if reused is not None:
                return reused
            split = choose_split(sources, validation_fraction, seed)
            work = _Work(sources, split, text_field, folder, inputs_hash, num_workers or _workers(sources), progress)
            return _prepare(str(source), work, choice)
    except (SourceError, TokenFileError, TokenizerError) as error:
        raise PrepareError(str(error)) from error
    except OSError as error:
        raise PrepareError(f"cannot write to {folder}: {error.strerror}") from error


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """While inside, no other process prepares the folder.

    Raises:
        PrepareError: another does; its number and host are told.
        OSError: the folder cannot be written to.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(alone(folder / LOCK_NAME, leave=False))
        except Taken as taken:
            holder = f" ({taken.holder})" if taken.holder else ""
            words = f"another process is preparing {folder} right now{holder}; wait for it, or end it"
            raise PrepareError(words) from None
        yield


def _require_possible(validation_fraction: float, num_workers: int | None) -> None:
    """Refuse a share that is none, and work that nobody does.

    Raises:
        PrepareError: says why.
    """
    if not 0 < validation_fraction < 1:
        raise PrepareError(
            f"the validation fraction must lie above 0 and below 1, got {validation_fraction}: a run is validated on "
            "text that it was not trained on, and trained on the rest; 0.001 keeps little for it"
        )
    if num_workers is not None and num_workers < 1:
        raise PrepareError(f"at least one worker must encode, got {num_workers}")


@dataclass(frozen=True, slots=True)
class _Work:
    """What is prepared, where to, and by how many."""

    sources: Sources
    split: Split
    text_field: str
    folder: Path
    inputs_hash: str
    num_workers: int
    progress: Progress | None

    def pieces(self, what: str) -> Iterator[Piece]:
        """All text, in order, told to `progress` under the name `what`."""
        done = 0
        for piece in pieces(self.sources, self.split, self.text_field):
            yield piece
            read = piece.num_bytes if piece.read_bytes is None else piece.read_bytes
            done += read
            if self.progress is not None and read:
                self.progress(done, self.sources.num_bytes, what)


def _workers(sources: Sources) -> int:
    if sources.num_bytes < ALONE_BYTES:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def _hash_inputs(sources: Sources, choice: _Choice, validation_fraction: float, seed: int, text_field: str) -> str:
    maker = choice.published.hash if choice.published is not None else f"tokenizers {metadata.version('tokenizers')}"
    inputs = [RECIPE, sources.kind, sources.sha256, choice.kind, choice.vocab_size, maker, validation_fraction, seed]
    if any(file.format.is_table for file in sources.files):
        inputs.append(text_field)
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()


def _find_earlier(folder: Path, inputs_hash: str, sources: Sources, replacing: bool) -> PreparedData | None:
    """The same preparation, if it is there and whole.

    Raises:
        PrepareError: something else is there, which shall not be replaced.
    """
    with contextlib.suppress(PrepareError):  # nothing there, not whole, or damaged: it is made anew
        earlier = load_prepared(folder)
        if earlier.inputs_hash == inputs_hash:
            earlier.verify()
            return replace(earlier, reused=True)
    if not replacing:
        require_free(folder, inputs_hash, sources.sha256)
    return None


def _prepare(source: str, work: _Work, choice: _Choice) -> PreparedData:
    sources, split, folder = work.sources, work.split, work.folder
    earlier = Unfinished.read(folder, work.inputs_hash)
    if earlier is None:
        tokenizer, assumptions = _make_tokenizer(work, choice)
    else:
        tokenizer, assumptions = parse_tokenizer(earlier.tokenizer), earlier.assumptions
    journal = Journal(folder, work.inputs_hash, tokenizer, assumptions)
    sizes = _write_tokens(work, tokenizer, journal, earlier)
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
        inputs_hash=work.inputs_hash,
        assumptions=assumptions,
        versions=_versions(),
    )
    data.save()
    journal.close()
    return data


def _make_tokenizer(work: _Work, choice: _Choice) -> tuple[Tokenizer, tuple[str, ...]]:
    """The tokenizer, and what was decided on the way. It is trained on the training part alone."""
    if choice.published is not None:
        return choice.published, choice.assumptions
    assumptions = list(choice.assumptions)
    every = -(-work.sources.num_bytes // TRAINING_BYTES)
    if every > 1:
        assumptions.append(f"the tokenizer was trained on one stretch of text in {every}")
    training = work.pieces("training the tokenizer")
    texts = (piece.text for i, piece in enumerate(training) if i % every == 0 and not piece.validation)
    # Each merge needs text of its own; the library aborts where it cannot set memory aside for all that is asked for.
    most = sum(file.num_bytes * (COMPRESSION if file.format.is_table else 1) for file in work.sources.files)
    tokenizer = train_bpe(texts, min(choice.vocab_size, SMALLEST_BPE + most))
    if tokenizer.vocab_size < choice.vocab_size:
        assumptions.append(f"the text gave {tokenizer.vocab_size} tokens, fewer than the {choice.vocab_size} asked for")
    return tokenizer, tuple(assumptions)


def _write_tokens(work: _Work, tokenizer: Tokenizer, journal: Journal, earlier: Unfinished | None) -> tuple[int, int]:
    """Write both token files and the tokenizer; returns the bytes of text in each."""
    writers, earlier = _open_writers(work.folder, tokenizer, earlier)
    done, sizes = (0, [0, 0]) if earlier is None else (earlier.num_groups, list(earlier.num_bytes))
    if earlier is None:
        journal.close()
    with writers[0], writers[1]:
        try:
            todo = islice(groups(work.pieces("encoding")), done, None)
            for group, encoded in encode_groups(todo, tokenizer, work.num_workers):
                for piece, ids in zip(group, encoded, strict=True):
                    sizes[piece.validation] += piece.num_bytes
                    writers[piece.validation].write(ids)
                    if piece.ends_document:
                        writers[piece.validation].end_document()
                done += 1
                journal.note(done, writers, sizes)
        except BaseException:
            if journal.is_begun:
                for writer in writers:
                    writer.leave()
            raise
        for part, words in zip(writers, ("training", "validation"), strict=True):
            if part.num_tokens == 0:
                journal.close()
                raise PrepareError(f"too little text: none of its {work.sources.num_bytes} bytes is left for {words}")
        # From here until the summary is written anew, the folder is known not to be whole, and whose it is.
        journal.begin_anew()
        (work.folder / SUMMARY_NAME).unlink(missing_ok=True)
        save_tokenizer(tokenizer, work.folder / TOKENIZER_NAME)
    return sizes[0], sizes[1]


def _open_writers(
    folder: Path, tokenizer: Tokenizer, earlier: Unfinished | None
) -> tuple[tuple[TokenFileWriter, TokenFileWriter], Unfinished | None]:
    """Both writers, after what was written earlier if it is all there, else from the beginning."""

    def writer(name: str, keep_tokens: int) -> TokenFileWriter:
        return TokenFileWriter(
            folder / name,
            vocab_size=tokenizer.vocab_size,
            end_of_text_id=tokenizer.end_of_text_id,
            tokenizer_hash=tokenizer.hash,
            keep_tokens=keep_tokens,
        )

    if earlier is not None:
        opened: list[TokenFileWriter] = []
        with contextlib.suppress(TokenFileError):
            opened.extend(map(writer, (TRAIN_NAME, VALIDATION_NAME), earlier.num_tokens))
            if (opened[0].num_documents, opened[1].num_documents) == earlier.num_documents:
                return (opened[0], opened[1]), earlier
        for one in opened:
            one.abort()
    train = writer(TRAIN_NAME, 0)
    try:
        return (train, writer(VALIDATION_NAME, 0)), None
    except BaseException:
        train.abort()
        raise


def _describe(path: Path, num_bytes: int) -> tuple[PreparedPart, Int64[np.ndarray, " vocabulary"]]:
    token_file = TokenFile.open(path)
    counts, header = unigram_counts(token_file), token_file.header
    assert header.num_documents is not None
    assert header.payload_sha256 is not None
    part = PreparedPart(
        header.num_tokens, header.num_documents, num_bytes, unigram_entropy(counts), header.payload_sha256
    )
    return part, counts


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    for name in ("torchledger", "tokenizers"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # run from a source tree, or the extra is not installed
            continue
    return versions
