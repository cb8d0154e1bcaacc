"""`torchledger audit determinism`: whether a step repeats bit for bit, and the first operation that does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchledger.cli.audit_options import answer, audit_options, subject
from torchledger.cli.documented import Documented
from torchledger.cli.failure import Failed
from torchledger.cli.named_path import NamedPath
from torchledger.cli.progress import Progress

if TYPE_CHECKING:
    from torchledger.auditor.determinism_run import Run

_SEED = 1337


@click.command(
    cls=Documented,
    name="determinism",
    examples=(
        "torchledger audit determinism gpt2 --set model.num_layers=1 --sequence 16 --processes 0   a preset",
        "torchledger audit determinism my.py:build --steps 4 --repeats 3   your own model and DataLoader",
    ),
)
@audit_options
@click.option("--steps", type=click.IntRange(1), default=2, show_default=True, help="Training steps of each run.")
@click.option(
    "--repeats", type=click.IntRange(2), default=2, show_default=True, help="Runs from the same state: races hide."
)
@click.option("--device", type=click.Choice(("cpu", "cuda")), help="Whose documented list to match (default: its own).")
@click.option(
    "--processes",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="New processes that run it too, each with another seed for Python's hashes.",
)
@click.option(
    "--written-to", type=NamedPath(path_type=Path), hidden=True, help="Write one run there, for another process."
)
def command(**options: Any) -> None:
    """Whether a step repeats bit for bit, and the first operation that does not.

    Seeds of torch, NumPy and Python are set together, and the run is repeated: from the same state, made anew, in
    another process, with other threads, with unwritten memory filled. Every operation's result is compared.
    """
    from torchledger.auditor.determinism import audit_determinism, run_once

    target, seed = options["target"], _SEED if options["seed"] is None else options["seed"]
    audited = subject(target, options)
    if options["written_to"] is not None:
        run = run_once(audited, seed=seed, steps=options["steps"])
        options["written_to"].write_text(json.dumps(run.told()), encoding="utf-8")
        return
    elsewhere = dict(_elsewhere(options)) if audited.rebuild is not None else {}
    with closing(Progress()) as progress:
        record = audit_determinism(
            audited,
            seed=seed,
            steps=options["steps"],
            repeats=options["repeats"],
            target=options["device"],
            elsewhere=elsewhere,
            progress=progress,
        )
    answer(record, options)


def _elsewhere(options: Mapping[str, Any]) -> Iterator[tuple[str, Run]]:
    """The same run in new processes, one after another."""
    from torchledger.auditor.determinism_run import Run

    with closing(Progress(foretells=False)) as progress, tempfile.TemporaryDirectory() as folder:
        for number in range(1, options["processes"] + 1):
            progress(number - 1, options["processes"], "running it in another process")
            place = Path(folder) / f"{number}.json"
            done = subprocess.run(  # noqa: S603  # our own command, with the words that the user wrote
                [
                    sys.executable,
                    "-m",
                    "torchledger",
                    "audit",
                    "determinism",
                    *_words(options),
                    f"--written-to={place}",
                ],
                env={**os.environ, "PYTHONHASHSEED": str(_other_than_ours(number))},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                said = done.stderr.strip().splitlines() or ["it said nothing"]
                raise Failed(f"the same audit fails in another process: {said[-1]}; --processes 0 leaves it out")
            told = json.loads(place.read_text(encoding="utf-8"))
            name = "in another process" if options["processes"] == 1 else f"in another process (number {number})"
            yield name, Run.of(told)


def _words(options: Mapping[str, Any]) -> Iterator[str]:
    """The target and what makes its subject, as words of a command line."""
    yield options["target"]
    yield f"--steps={options['steps']}"
    named = {"batch_size": "batch", "sequence_length": "sequence", "precision": "precision", "seed": "seed"}
    yield from (f"--{word}={options[name]}" for name, word in named.items() if options[name] is not None)
    yield from (f"--set={each}" for each in options["sets"])


def _other_than_ours(number: int) -> int:
    """A seed for Python's hashes that is not the one of this process, where that has one."""
    ours = os.environ.get("PYTHONHASHSEED", "")
    return number + 1000 if ours == str(number) else number
