"""`torchledger launch`: the command line that starts a training run on its ranks."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchledger.cli.documented import Documented
from torchledger.cli.named_path import NamedPath
from torchledger.cli.output import json_option, note, show_json

if TYPE_CHECKING:
    from torchledger.trainer.run_folder import RunFolder

_HOST_RANKS = 8  # GPUs of the hosts that are usual


@click.command(
    cls=Documented,
    examples=(
        "torchledger launch run.toml                     as many ranks as the file's strategy has",
        "torchledger launch run.toml --ranks 4           replicas, where the file says nothing",
        "torchledger launch run.toml --ranks 64 --per-host 8 --head node0 --set strategy.shard_level=3",
        "torchledger plan llama-3-8b --on h100x8 --launch torchledger    from a plan",
    ),
)
@click.argument("file", type=NamedPath(path_type=Path))
@click.option("--ranks", type=click.IntRange(min=1), help="Processes, where the file's strategy does not say.")
@click.option("--per-host", type=click.IntRange(min=1), help="Processes that one host starts.  [default: at most 8]")
@click.option(
    "--head", metavar="HOST[:PORT]", help="The host that all meet at.  [default: HEAD_NODE, as the shell has it]"
)
@click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Set one value of the configuration.")
@click.option("--resume", is_flag=True, help="FILE is the folder of a run, which goes on.")
@click.option("--allow-changes", is_flag=True, help="With --resume: on other ranks too, not bit for bit the same.")
@json_option
def command(file: Path, as_json: bool, **options: Any) -> None:
    """Print the command that starts a run on many ranks.

    FILE is a run's TOML. The layout is checked before anything is started: what these ranks cannot share, or what is
    not built, is told with all of it at once. The command goes to stdout, so that a shell can run it:
    `eval "$(torchledger launch run.toml --ranks 2)"`. Hosts start it each, and meet at one of them.
    """
    from torchledger.planner.launch import shell_word

    words, notes, num_ranks = _words(file, options)
    text = " ".join(map(shell_word, words))
    if as_json:
        question = {"file": str(file), "ranks": options["ranks"], "set": list(options["sets"])}
        show_json("launch", question, {"command": text, "words": list(words), "num_ranks": num_ranks}, notes)
        return
    for each in notes:
        note(each)
    click.echo(text)


def _words(file: Path, options: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    from torchledger import spec as specs
    from torchledger.cli.runs import load_run_config
    from torchledger.planner.launch import HostsUnfilled, torchrun_words
    from torchledger.trainer.layout import require_layout
    from torchledger.trainer.ranks import Ranks
    from torchledger.trainer.run_folder import RunFolder

    if options["allow_changes"] and not options["resume"]:
        raise click.UsageError("--allow-changes is of a run that goes on: give --resume too")
    ranks, sets = options["ranks"], options["sets"]
    folder = RunFolder.open(file) if options["resume"] else None
    config = load_run_config(folder.config_path if folder else file, sets).value
    strategy, held_by = config.strategy, _held_by(folder) if folder else None
    if ranks is None and folder is not None and strategy.num_ranks == 1 and not sets:
        ranks = held_by or _begun_by(folder)  # replicas that nothing but the number of processes asked for
    if strategy.num_ranks == 1 and ranks is not None:
        strategy = replace(strategy, data_parallel=ranks)
    num_ranks = strategy.num_ranks
    if ranks not in {None, num_ranks}:
        raise click.UsageError(f"--ranks {ranks}: the strategy of {file} is for {num_ranks}; change one of them")
    model = specs.load(config.model) if isinstance(config.model, str) else config.model
    require_layout(model, config.recipe, strategy, Ranks(0, num_ranks))
    rest = ["-m", "torchledger", "train", *(["--resume"] if folder else []), str(file)]
    for each in sets:
        rest += ["--set", each]
    said: tuple[str, ...] = ()
    if options["allow_changes"]:
        rest.append("--allow-changes")
    elif held_by not in {None, num_ranks}:
        others = f"its checkpoint is of {held_by} and this of {num_ranks} ranks"
        said = (f"{others}, which train refuses without --allow-changes",)
    per_host, head = options["per_host"] or min(num_ranks, _HOST_RANKS), options["head"]
    if head is not None and num_ranks <= per_host:
        raise click.UsageError(f"--head is where hosts meet, and one host starts all of {num_ranks}; leave it out")
    if num_ranks == 1:
        return (*_here("python"), *rest), said, 1
    try:
        starter, notes = torchrun_words(
            num_ranks, per_host, job=config.name, **({} if head is None else {"head": head})
        )
    except HostsUnfilled as unfilled:
        others = unfilled.filled or "1"
        raise click.UsageError(f"{unfilled.what}; say how many a host starts with --per-host {others}") from None
    return (*_here("torchrun"), *starter[1:], *rest), (*notes, *said), num_ranks


def _held_by(folder: RunFolder) -> int | None:
    """Ranks that wrote the checkpoint that the run goes on from; nothing where it has saved none, and any may begin."""
    from torchledger.trainer.loop import resume_point
    from torchledger.trainer.manifest import Manifest

    checkpoint = resume_point(folder)
    return None if checkpoint is None else int(Manifest.read(checkpoint).identity.numerics.get("world_size", 1))


def _begun_by(folder: RunFolder) -> int:
    """Ranks that the run began on."""
    from torchledger.cli.runs import read_json

    numerics = read_json(folder.environment_path).get("numerics", {})
    return int(numerics.get("world_size", 1))


def _here(program: str) -> tuple[str, ...]:
    """The program by its name where a shell finds this environment's, else as this Python runs it."""
    found = shutil.which(program)
    if found is not None and Path(found).parent.resolve() == Path(sys.executable).parent.resolve():
        return (program,)
    return (sys.executable,) if program == "python" else (sys.executable, "-m", "torch.distributed.run")
