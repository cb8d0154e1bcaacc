"""`torchledger train`: predict a training run, run it, close the books."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchledger.cli.documented import Documented
from torchledger.cli.failure import FAILED, INTERRUPTED, SIGNALLED, DoesNotFit, Failed
from torchledger.cli.live import Live
from torchledger.cli.named_path import NamedPath
from torchledger.cli.output import is_quiet, json_option, note, show, show_json
from torchledger.cli.progress import Progress
from torchledger.cli.runs import REPORT_NAME, load_run_config, load_run_to_train
from torchledger.units import format_bytes

if TYPE_CHECKING:
    from torchledger.cli.prediction import Prediction
    from torchledger.spec import Strategy
    from torchledger.trainer.events import Event, Finished, Interrupted
    from torchledger.trainer.process_group import Crew
    from torchledger.trainer.ranks import Ranks
    from torchledger.trainer.run_folder import RunFolder
    from torchledger.trainer.setup import Setup


@click.command(
    cls=Documented,
    examples=(
        "torchledger train                            the embedded default, on the data of `prepare stdlib`",
        "torchledger train run.toml --set recipe.batch_size=16",
        "torchledger train run.toml --dry-run         the prediction alone",
        "torchledger train --resume runs/latest       go on, bit for bit as if never stopped",
    ),
)
@click.argument("file", type=NamedPath(path_type=Path), required=False)
@click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Set one value of the configuration.")
@click.option("--resume", type=NamedPath(path_type=Path), help="Go on with the run in this folder.")
@click.option("--out", type=NamedPath(file_okay=False, path_type=Path), help="The run's folder.")
@click.option("--device", type=click.Choice(("auto", "cpu", "cuda", "mps")), help="Where to train.")
@click.option("--dry-run", is_flag=True, help="Predict and check that it fits; train nothing.")
@click.option("--force", is_flag=True, help="Train although the prediction does not fit.")
@click.option("--allow-changes", is_flag=True, help="Resume although it will not be bit for bit the same.")
@json_option
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Predict a training run, run it, and close the books.

    FILE is a run's TOML; without it the embedded default trains a small model on Python's standard library. Exit code 3
    when the predicted peak is more than the free memory; 130 after Ctrl-C, 143 after SIGTERM, 129 after the terminal
    hung up, with everything saved.
    """
    from torchledger.cli.torchrun import find_crew, leave
    from torchledger.trainer.launcher import following

    crew = find_crew()
    if crew is None:
        ctx.exit(_lead(options, None))
    with following():
        leave(_of_rank(options, crew, debug=ctx.find_root().params.get("debug", False)))


def _of_rank(options: dict[str, Any], crew: Crew, *, debug: bool) -> int:
    """All that one of several ranks does, its errors told: the process ends by `leave`, and nobody else tells them."""
    from torchledger.cli.torchrun import follow, let_go, tell_failure

    code = FAILED
    try:
        code = _lead(options, crew) if crew.ranks.is_first else follow(crew)
    except BrokenPipeError:
        code = 0
        raise
    except Exception as error:  # noqa: BLE001 - as in `main`
        code = tell_failure(crew, error, debug=debug)
    except KeyboardInterrupt:
        code = INTERRUPTED
        if crew.ranks.is_first:
            click.echo("interrupted", err=True)
    finally:
        if crew.ranks.is_first:
            let_go(crew, code)
    return code


def _lead(options: dict[str, Any], crew: Crew | None) -> int:
    """All that the first rank does, or the only one; the exit code."""
    from torchledger.trainer.determinism import deterministic

    setup, folder, checkpoint = _begin(options, crew)
    if setup.config.deterministic:
        # cuBLAS reads it once, when CUDA wakes: https://docs.nvidia.com/cuda/cublas/#results-reproducibility
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with deterministic(setup.config.deterministic):
        return _run(options, crew, setup, folder, checkpoint)


def _run(
    options: dict[str, Any], crew: Crew | None, setup: Setup, folder: RunFolder | None, checkpoint: Path | None
) -> int:
    """Predict, train, close the books; the exit code."""
    from torchledger.cli.torchrun import together

    prediction = _predict(setup)
    _show_prediction(prediction, options["as_json"])
    _check_fit(prediction, options["force"])
    if options["dry_run"]:
        if options["as_json"]:
            show_json("train", _question(setup), {"prediction": prediction.figures}, prediction.assumptions)
        return 0
    from torchledger.trainer import begin_again, new_run

    if folder is None:
        folder = new_run(setup, options["out"])
    elif checkpoint is None:
        begin_again(setup, folder)
    with together(crew, setup, folder, checkpoint, options["allow_changes"]):
        last = _train(prediction, folder, checkpoint, allow_changes=options["allow_changes"])
        if type(last).__name__ != "Interrupted":
            _close(prediction, folder, last, options["as_json"])  # type: ignore[arg-type]
            return 0
    _tell_resume(last, folder, setup.ranks)  # type: ignore[arg-type]
    return SIGNALLED + last.signal  # type: ignore[union-attr]


def _begin(options: dict[str, Any], crew: Crew | None) -> tuple[Setup, RunFolder | None, Path | None]:
    """The run that is asked for: a new one, or one to go on with."""
    from torchledger.trainer import resolve, resume_changes, resume_point
    from torchledger.trainer.ranks import Ranks
    from torchledger.trainer.run_folder import RunFolder

    ranks = Ranks() if crew is None else crew.ranks
    sets = list(options["sets"])
    if options["device"] is not None:
        sets.append(f"device={options['device']}")
    if options["resume"] is None:
        setup = resolve(load_run_to_train(options["file"], sets), ranks)
        if not options["dry_run"]:
            if options["out"] is not None:
                RunFolder(options["out"]).require_free()
            RunFolder(options["out"] or setup.config.runs).require_writable()
        return setup, None, None
    if options["file"] is not None or options["out"] is not None:
        raise click.UsageError("--resume takes configuration and folder from the run; give neither FILE nor --out")
    folder = RunFolder.open(options["resume"])
    config = load_run_config(folder.config_path, _in_steps(sets)).value
    _require_ranks(config.strategy, ranks, folder)
    setup = resolve(config, ranks)
    checkpoint = resume_point(folder)
    # both are asked again when training begins; measuring the machine first would let the user wait for a refusal
    if checkpoint is not None:
        resume_changes(checkpoint, setup, allow_changes=options["allow_changes"])
    with folder.locked():
        if checkpoint is None:
            note(f"warning: {folder.path} has saved nothing to go on from: it begins at step 0, and drops earlier rows")
        return setup, folder, checkpoint


def _require_ranks(strategy: Strategy, ranks: Ranks, folder: RunFolder) -> None:
    """Refuse to go on with other ranks than the run is spread over.

    Raises:
        UsageError: with how to start as many as it has, and how to go on with those that run.
    """
    if strategy.num_ranks in {1, ranks.size}:
        return
    replicas, remainder = divmod(ranks.size, strategy.num_ranks // strategy.data_parallel)
    changed: dict[str, Any] = {"data_parallel": replicas}
    if remainder:  # nor do tensor parallel ranks stay as many
        changed = {"data_parallel": ranks.size, "tensor_parallel": 1}
    if strategy.sequence_parallel and "tensor_parallel" in changed:
        changed["sequence_parallel"] = "false"
    if strategy.shard_group and changed["data_parallel"] % strategy.shard_group:
        changed["shard_group"] = 0
    sets = " ".join(f"--set strategy.{name}={value}" for name, value in changed.items())
    start = f"torchrun --standalone --nproc-per-node={strategy.num_ranks} -m torchledger train --resume"
    raise click.UsageError(
        f"the run in {folder.path} is spread over {strategy.num_ranks} ranks, and {ranks.size} "
        f"{'runs' if ranks.is_alone else 'run'}; start it with {start} {shlex.quote(str(folder.path))}, or go on with "
        f"{ranks.size}, not bit for bit the same: --allow-changes {sets}"
    )


def _in_steps(sets: list[str]) -> list[str]:
    """What is set of a run that goes on: the length that its folder has is in tokens, and steps take its place."""
    names = {each.partition("=")[0].strip() for each in sets}
    if "num_steps" in names and "recipe.num_tokens" not in names:
        return [*sets, "recipe.num_tokens=0"]
    return sets


def _predict(setup: Setup) -> Prediction:
    from torchledger.cli.prediction import disagreement, predict

    progress = Progress(quiet=is_quiet())
    try:
        prediction = predict(setup, progress)
    finally:
        progress.close()
    for line in disagreement(prediction.ledger, prediction.trace):
        note(f"warning: formula and trace differ: {line}")
    return prediction


def _show_prediction(prediction: Prediction, as_json: bool) -> None:
    if as_json:
        return
    from torchledger.formula import parameters
    from torchledger.view.run import prediction_screen

    setup = prediction.setup
    show(
        prediction_screen(
            setup.config.name,
            prediction.figures,
            prediction.ledger,
            parameters(setup.spec, setup.recipe),
            prediction.assumptions,
        )
    )


def _check_fit(prediction: Prediction, force: bool) -> None:
    """Exit 3 where the prediction is more than there is, with what would fit."""
    from torchledger.cli.prediction import what_would_fit
    from torchledger.view.run import fit_lines

    told = fit_lines(prediction.needed_bytes, prediction.free_bytes)
    if prediction.is_fitting:
        return
    if force:
        note(f"warning: {told}; training all the same, as --force says")
        return
    note("looking for what would fit ...")
    raise DoesNotFit(f"{told}; {what_would_fit(prediction.setup, prediction.free_bytes)}; or --force")


def _train(prediction: Prediction, folder: RunFolder, checkpoint: Path | None, *, allow_changes: bool) -> Event:
    """Run the loop, draw its events, give back the last.

    Raises:
        DoesNotFit: no memory left.
        Failed: a loss that is no number, a full disk.
    """
    from torchledger.trainer import CheckpointError, NonFinite, OutOfMemory, ResumeRefused, RunFolderError, train

    setup = prediction.setup
    live = Live(setup.recipe.num_steps, every=setup.config.log_interval)
    last: Event | None = None
    try:
        for event in train(
            setup,
            folder,
            checkpoint=checkpoint,
            allow_changes=allow_changes,
            yardstick=prediction.yardstick,
        ):
            last = event
            if not is_quiet():
                live.show(event)
    except OutOfMemory as error:
        predicted = format_bytes(prediction.peak.peak_bytes)
        free = format_bytes(prediction.free_bytes)
        raise DoesNotFit(f"{error} (predicted peak {predicted}, free when it began {free})") from error
    except ResumeRefused:
        raise
    except (NonFinite, CheckpointError) as error:
        raise Failed(str(error)) from error
    except RunFolderError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        raise Failed(f"{error}; {_way_on(folder)}") from error
    finally:
        live.close()
    assert last is not None
    return last


def _way_on(folder: RunFolder) -> str:
    """What is left of a run that could not write its rows, and how it goes on."""
    from torchledger.trainer import latest_checkpoint

    latest = latest_checkpoint(folder.checkpoints)
    if latest is None:
        again = f"torchledger train --resume {folder.path} begins at step 0"
        return f"there is no checkpoint yet: once it can be written to, {again}"
    return f"{latest} is whole; once it can be written to, torchledger train --resume {folder.path}"


def _tell_resume(last: Interrupted, folder: RunFolder, ranks: Ranks) -> None:
    note(f"stopped after step {last.step}, saved {last.checkpoint}")
    where = shlex.quote(str(folder.path))
    start = f"train --resume {where}" if ranks.is_alone else f"launch {where} --resume says how to start its ranks"
    note(f"go on, bit for bit as if never stopped: torchledger {start}")


def _close(prediction: Prediction, folder: RunFolder, finished: Finished, as_json: bool) -> None:
    from dataclasses import asdict

    from torchledger.cli.closing import close_books
    from torchledger.cli.measurement import measure_steps
    from torchledger.view.run import closing_screen

    note("measuring the first two steps again, under the allocator's profiler ...")
    measured = measure_steps(prediction.setup)
    try:
        record = close_books(folder, prediction, measured, finished)
    except OSError as error:
        raise Failed(
            f"cannot write the books into {folder.path}: {error.strerror}; the run is whole and saved in "
            f"{finished.checkpoint}; to close its books: torchledger train --resume {folder.path}"
        ) from error
    if as_json:
        answer = {
            "folder": str(folder.path),
            "prediction": record.prediction,
            "differences": [{**asdict(each), "within": each.within} for each in record.differences],
            "result": dict(finished.figures),
            "samples": list(record.samples),
        }
        show_json("train", _question(prediction.setup), answer, prediction.assumptions)
        return
    show(closing_screen(record))
    note(f"report: {folder.path / REPORT_NAME}")


def _question(setup: Setup) -> dict[str, Any]:
    from torchledger import config

    asked: dict[str, Any] = config.to_dict(setup.config)
    return asked
