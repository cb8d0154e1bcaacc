"""`torchledger data`: prove and show token files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchledger.cli.documented import Documented
from torchledger.cli.failure import Failed
from torchledger.cli.named_path import NamedPath
from torchledger.cli.output import is_quiet, json_option, show, show_json
from torchledger.cli.progress import Progress
from torchledger.cli.quantity import COUNT
from torchledger.units import format_number, group_digits
from torchledger.view.screen import Block, Facts, Lines, Row, Table

if TYPE_CHECKING:
    from torchledger.trainer.survey import Survey
    from torchledger.trainer.tokenfile import TokenFile

_PARTS = ("train.tokens", "validation.tokens")  # of a folder that `prepare` wrote
_UNKNOWN = "not known"
_TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")


@click.group()
def command() -> None:
    """Prove and show token files, ours and other projects'.

    A folder that `prepare` wrote, a .tokens file, a NumPy array, an llm.c or modded-nanogpt .bin, a Megatron .bin with
    its .idx, or ids and nothing else (nanoGPT, OLMo), whose type must then be told.
    """


def _told(function: Callable[..., None]) -> Callable[..., None]:
    """The options that say what a file cannot say itself."""
    for option in (
        click.option("--end-of-text", type=COUNT, help="The id that ends documents, where the file does not say it."),
        click.option(
            "--vocab-size", type=COUNT, help="Ids at or beyond it are faults, where the file does not say it."
        ),
        click.option("--dtype", type=click.Choice(_TYPES), help="Type of the ids of a file without a header."),
    ):
        function = option(function)
    return function


@command.command(
    "verify",
    cls=Documented,
    examples=(
        "torchledger data verify data/stdlib",
        "torchledger data verify data/train.bin --dtype uint16 --vocab-size 50257 --end-of-text 50256",
    ),
)
@click.argument("paths", nargs=-1, required=True, type=NamedPath(path_type=Path))
@_told
@json_option
def verify_command(paths: tuple[Path, ...], as_json: bool, **told: Any) -> None:
    """Read token files to the last id: sizes, ids within the vocabulary, checksums, documents.

    Every file is read, whatever is wrong with another; any fault is exit code 1.
    """
    from torchledger.trainer.prepared import PrepareError
    from torchledger.trainer.survey import survey
    from torchledger.trainer.tokenfile import TokenFileError

    found: list[tuple[Path, TokenFile, Survey]] = []
    faults: list[tuple[Path, str]] = []
    progress = Progress(quiet=is_quiet())
    try:
        for path in _files(paths, faults):
            try:
                token_file = _open(path, told)
                found.append((path, token_file, survey(token_file, progress)))
            except (TokenFileError, PrepareError) as error:
                faults.append((path, str(error)))
    finally:
        progress.close()
    if as_json:
        answer = {
            "files": [_row(*one) for one in found],
            "faults": [{"path": str(path), "fault": fault} for path, fault in faults],
        }
        show_json("data.verify", {"paths": [str(path) for path in paths], **told}, answer)
    elif found:
        show(_surveyed(found))
    if faults:
        raise Failed("\n".join(fault for _, fault in faults))


@command.command(
    "show",
    cls=Documented,
    examples=(
        "torchledger data show data/stdlib --document 3",
        "torchledger data show data/train.bin --dtype uint16 --start 1000 --count 50",
    ),
)
@click.argument("path", type=NamedPath(path_type=Path))
@click.option("--document", type=click.IntRange(0), help="Show this document.")
@click.option("--start", type=click.IntRange(0), default=0, show_default=True, help="Show ids from this position on.")
@click.option("--count", type=click.IntRange(0), default=32, show_default=True, help="Show so many, at most.")
@click.option("--tokenizer", type=NamedPath(path_type=Path), help="A tokenizer.json, to show them as text.")
@_told
@json_option
def show_command(
    path: Path, *, document: int | None, start: int, count: int, tokenizer: Path | None, as_json: bool, **told: Any
) -> None:
    """What a token file says of itself, and some of its ids, as text where the tokenizer is known.

    Of a folder that `prepare` wrote, its training tokens.
    """
    from torchledger.trainer.tokenfile import TokenFileError

    token_file = _open(path / _PARTS[0] if path.is_dir() else path, told)
    if document is not None:
        offsets = token_file.documents()
        if document >= len(offsets) - 1:
            raise TokenFileError(f"{path} has {len(offsets) - 1:,} documents, counted from 0; asked for {document:,}")
        start, end = int(offsets[document]), int(offsets[document + 1])
        count = min(count, end - start) if _was_given("count") else end - start
    elif start > 0 and start >= token_file.num_tokens:
        raise TokenFileError(f"{path} has {token_file.num_tokens:,} ids, counted from 0; asked for {start:,}")
    ids = token_file.read(start, min(count, token_file.num_tokens - start)).tolist()
    text = _text(token_file, tokenizer, ids)
    if as_json:
        question = {"path": str(path), "document": document, "start": start, "count": count, **told}
        show_json("data.show", question, {**_header(token_file), "start": start, "ids": ids, "text": text})
    else:
        show(_shown(token_file, start, ids, text))


def _was_given(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is not click.core.ParameterSource.DEFAULT


def _files(paths: tuple[Path, ...], faults: list[tuple[Path, str]]) -> list[Path]:
    """The token files that are asked for; those of a prepared folder if it is whole."""
    from torchledger.trainer.prepared import PrepareError, load_prepared

    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            try:
                load_prepared(path).verify_sources()
            except PrepareError as error:
                faults.append((path, str(error)))
            files.extend(path / name for name in _PARTS if (path / name).is_file())
        else:
            files.append(path)
    return files


def _open(path: Path, told: dict[str, Any]) -> TokenFile:
    from torchledger.trainer.tokenfile import TokenFile

    return TokenFile.open(path, dtype=told["dtype"], vocab_size=told["vocab_size"], end_of_text_id=told["end_of_text"])


def _text(token_file: TokenFile, tokenizer: Path | None, ids: list[int]) -> str | None:
    """The ids as text, by the tokenizer that is given or the one beside the file that made it."""
    from torchledger.trainer.tokenizer import TokenizerError, load_tokenizer

    if tokenizer is not None:
        return load_tokenizer(tokenizer).decode(ids)
    try:
        beside = load_tokenizer(token_file.path.with_name("tokenizer.json"))
    except TokenizerError:
        return None
    return beside.decode(ids) if beside.hash == token_file.header.tokenizer_hash else None


def _header(token_file: TokenFile) -> dict[str, Any]:
    header = token_file.header
    return {
        "path": str(token_file.path),
        "format": token_file.layout,
        "dtype": header.dtype,
        "num_tokens": token_file.num_tokens,
        "num_documents": header.num_documents,
        "vocab_size": header.vocab_size,
        "end_of_text_id": header.end_of_text_id,
        "tokenizer_hash": header.tokenizer_hash,
        "ids_sha256": header.payload_sha256,
    }


def _row(path: Path, token_file: TokenFile, found: Survey) -> dict[str, Any]:
    return {**_header(token_file), **asdict(found), "path": str(path)}


def _grouped(value: int | None) -> str:
    return _UNKNOWN if value is None else group_digits(value)


def _surveyed(found: list[tuple[Path, TokenFile, Survey]]) -> tuple[Block, ...]:
    columns = (
        "<file",
        "<format",
        "<type",
        "tokens",
        "vocabulary",
        "largest id",
        "distinct",
        "entropy (nats)",
        "<proof",
    )
    rows = tuple(
        Row(
            (
                str(path),
                token_file.layout,
                token_file.header.dtype,
                group_digits(one.num_tokens),
                group_digits(token_file.vocab_size),
                _grouped(one.largest_id),
                _grouped(one.num_distinct),
                _UNKNOWN if one.unigram_entropy_nats is None else f"{one.unigram_entropy_nats:.4f}",
                "checksums" if one.is_proven else "size and ids",
            )
        )
        for path, token_file, one in found
    )
    lengths = tuple(
        Row(
            (
                str(path),
                group_digits(one.documents.num_documents),
                group_digits(one.documents.shortest),
                format_number(one.documents.median),
                format_number(one.documents.mean),
                group_digits(one.documents.longest),
            )
        )
        for path, _, one in found
        if one.documents is not None
    )
    titles = ("<file", "documents", "shortest", "median", "mean", "longest")
    tables = (
        (Table(columns, rows), Table(titles, lengths, title="tokens a document"))
        if lengths
        else (Table(columns, rows),)
    )
    return (Lines((f"{len(found)} token files read to the last id",), mark="headline"), *tables)


def _shown(token_file: TokenFile, start: int, ids: list[int], text: str | None) -> tuple[Block, ...]:
    header = token_file.header
    facts = (
        ("format", token_file.layout),
        ("type", header.dtype),
        ("tokens", group_digits(token_file.num_tokens)),
        ("documents", _grouped(header.num_documents)),
        ("vocabulary", group_digits(header.vocab_size)),
        ("end of text", _grouped(header.end_of_text_id)),
        ("tokenizer", header.tokenizer_hash or _UNKNOWN),
        ("SHA-256 of the ids", header.payload_sha256 or _UNKNOWN),
    )
    shown = Lines((f"ids {group_digits(start)} to {group_digits(start + len(ids))}:", " ".join(map(str, ids))))
    words = () if text is None else (Lines(("as text:", *text.splitlines())),)
    return (Lines((str(token_file.path),), mark="headline"), Facts(facts), shown, *words)
