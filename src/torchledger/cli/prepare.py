"""`torchledger prepare`: text and tables of text to token files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchledger.cli.documented import Documented
from torchledger.cli.named_path import NamedPath
from torchledger.cli.output import is_quiet, json_option, show, show_json
from torchledger.cli.progress import Progress
from torchledger.cli.quantity import COUNT, SHARE
from torchledger.units import format_number, group_digits
from torchledger.view.screen import Block, Facts, Lines, Row, Table, assumed

if TYPE_CHECKING:
    from torchledger.trainer.prepared import PreparedData


@click.command(
    cls=Documented,
    examples=(
        "torchledger prepare stdlib --out data/stdlib       Python's own standard library, found on this machine",
        "torchledger prepare my_texts --out data/mine       every text file in a folder",
        "torchledger prepare book.txt --out data/book --tokenizer bytes",
        "torchledger prepare my_texts/shard.jsonl.zst --out data/web --text-field content",
    ),
)
@click.argument("source")
@click.option(
    "--out", "out_dir", type=NamedPath(file_okay=False, path_type=Path), required=True, help="Folder to write."
)
@click.option("--vocab-size", type=COUNT, default="4096", show_default=True, help="Tokens of a BPE to train, at most.")
@click.option(
    "--validation", type=SHARE, default="5%", show_default=True, help="Share kept for validation, by file or record."
)
@click.option("--tokenizer", default="bpe", show_default=True, help="bpe trains one; bytes; or a tokenizer.json.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the split.")
@click.option(
    "--text-field", default="text", show_default=True, help="Field of JSON lines or column of a table to read."
)
@click.option("--workers", type=click.IntRange(1), help="Processes that encode; one a core where it pays.")
@click.option("--force", is_flag=True, help="Replace what else is prepared in the folder.")
@json_option
def command(**options: Any) -> None:
    """Make token files from a folder or a file: text, JSON lines, Parquet, Arrow, gzip, zstd.

    SOURCE is `stdlib` (the .py files of Python's standard library on this machine), a folder (also one that the
    `datasets` library saved), or one file. An identical preparation that is there already is reused, and one that was
    interrupted goes on; the result is the same to the byte, for any number of workers. A folder with other data in it
    is refused, unless --force replaces it.
    """
    from torchledger.trainer.prepare import prepare

    progress = Progress(quiet=is_quiet())
    try:
        data = prepare(
            options["source"],
            options["out_dir"],
            vocab_size=options["vocab_size"],
            validation_fraction=options["validation"],
            tokenizer=options["tokenizer"],
            seed=options["seed"],
            text_field=options["text_field"],
            num_workers=options["workers"],
            replacing=options["force"],
            progress=progress,
        )
    finally:
        progress.close()
    if options["as_json"]:
        question = {"source": options["source"], "out": str(options["out_dir"])}
        show_json(
            "prepare", question, {"folder": str(data.folder), "reused": data.reused, **data.to_dict()}, data.assumptions
        )
    else:
        show(prepared_screen(data))


def prepared_screen(data: PreparedData) -> tuple[Block, ...]:
    """What was prepared."""
    done = "was prepared already, nothing to do" if data.reused else "prepared"
    facts = (
        ("source", f"{data.source}: {group_digits(data.num_files)} files, {group_digits(data.num_skipped)} left out"),
        ("split", data.split),
        ("tokenizer", f"{data.tokenizer_kind}, {group_digits(data.vocab_size)} tokens"),
        ("unigram entropy", f"{data.unigram_entropy_nats:.4f} nats a token, the loss of knowing only frequencies"),
    )
    rows = tuple(
        Row(
            (
                name,
                group_digits(part.num_tokens),
                group_digits(part.num_documents),
                group_digits(part.num_bytes),
                format_number(part.bytes_per_token),
                f"{part.unigram_entropy_nats:.4f}",
            )
        )
        for name, part in (("training", data.train), ("validation", data.validation))
    )
    columns = ("<part", "tokens", "documents", "bytes of text", "bytes a token", "unigram entropy (nats)")
    return (
        Lines((f"{data.folder}: {done}",), mark="headline"),
        Facts(facts),
        Table(columns, rows),
        *assumed(data.assumptions),
    )
