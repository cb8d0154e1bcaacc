"""The training loop: when to step, evaluate, save, stop. It yields what happens and never prints."""

import contextlib
import datetime as dt
import math
from collections.abc import Iterator
from pathlib import Path

from torchledger.trainer.environment import environment
from torchledger.trainer.errors import CheckpointError, NonFinite
from torchledger.trainer.events import Event, Interrupted, Step
from torchledger.trainer.interrupts import Interrupts
from torchledger.trainer.run_folder import RunFolder
from torchledger.trainer.session import Session, is_unusual_start
from torchledger.trainer.setup import Setup

__all__ = ["new_run", "resume_point", "train"]


def new_run(setup: Setup, path: Path | None = None) -> RunFolder:
    """Make the folder of a new run and write what is known before the first step.

    Args:
        setup: the run.
        path: the folder, in place of `<runs>/<name>-<UTC time>`.

    Raises:
        RunFolderError: there is a run in it already, or it cannot be written to.
    """
    now = dt.datetime.now(dt.UTC)
    folder = RunFolder.create(setup.config, now, path)
    folder.write_start(setup.config, environment(setup, now), setup.data.tokenizer_path)
    return folder


def resume_point(folder: RunFolder) -> Path:
    """The checkpoint that a resumed run goes on from: the newest whole one.

    Raises:
        CheckpointError: there is none; the run has to begin anew, in a new folder.
    """
    from torchledger.trainer.checkpoint import latest_checkpoint

    latest = latest_checkpoint(folder.checkpoints)
    if latest is None:
        raise CheckpointError(f"no whole checkpoint in {folder.checkpoints}; begin a new run")
    return latest


def train(
    setup: Setup,
    folder: RunFolder,
    *,
    checkpoint: Path | None = None,
    allow_changes: bool = False,
    flops_per_step: float | None = None,
    peak_flops_per_s: float | None = None,
) -> Iterator[Event]:
    """Train, and yield each event as it happens. The last is `Finished`, or `Interrupted` after Ctrl-C or SIGTERM.

    Step n reads batch n, has learning rate n and random stream n, so that a run resumed from any checkpoint gives the
    losses of the uninterrupted one bit for bit. Evaluation and saving are in no step's time and touch no stream.

    Args:
        setup: the run, from `resolve`.
        folder: its folder, from `new_run` or `RunFolder.open`.
        checkpoint: where to go on from (`resume_point`); nothing begins anew.
        allow_changes: go on from a checkpoint whose run differs in what decides bits; each change is warned of.
        flops_per_step: model FLOPs of one step. With `peak_flops_per_s` it gives MFU.
        peak_flops_per_s: what MFU is measured against.

    Raises:
        NonFinite: the loss or the gradient norm is no number; the last good checkpoint is named.
        OutOfMemory: the device has no memory left.
        CheckpointError: a checkpoint cannot be saved (a full disk; earlier ones are whole) or read, or does not fit.
        RunFolderError: another process trains in the folder, or it cannot be written to.
        TokenFileError: the data cannot be read, or has an id beyond the vocabulary.
    """
    first = setup.ranks.is_first
    lock = folder.locked() if first else contextlib.nullcontext()
    with lock, Interrupts(shared=not setup.ranks.is_alone) as interrupts:
        session = Session(
            setup,
            folder,
            checkpoint=checkpoint,
            allow_changes=allow_changes,
            flops_per_step=flops_per_step,
            peak_flops_per_s=peak_flops_per_s,
        )
        with contextlib.closing(session):
            if session.changes and first:
                folder.write_config(setup.config)  # else the next resume would be held against what no longer holds
            yield session.started()
            for change in session.changes:
                yield session.warn(session.first_step, f"not bit for bit the uninterrupted run: {change}")
            if session.self_check:
                yield session.warn(session.first_step, session.self_check)
            yield from _steps(session, interrupts)


def _steps(session: Session, interrupts: Interrupts) -> Iterator[Event]:
    config, num_steps = session.setup.config, session.setup.recipe.num_steps
    done = session.first_step
    warned = False
    for step in range(session.first_step, num_steps):
        event = session.advance(step, interrupts)
        done = step + 1
        yield event
        yield from session.saved()
        _check_finite(event, session)
        if not warned and (message := _oddity(event, session.setup.spec.vocab_size)):
            warned = True
            yield session.warn(step, message)
        if _is_due(done, config.eval_interval) and done < num_steps and not interrupts.received:
            evaluated = session.evaluate(done, interrupts)
            yield from () if evaluated is None else (evaluated,)
        if interrupts.received:
            break
        if done < num_steps and (_is_due(done, config.checkpoint_interval) or _is_due(done, config.permanent_interval)):
            yield from session.save(done)
    yield from _end(session, interrupts, done)


def _end(session: Session, interrupts: Interrupts, done: int) -> Iterator[Event]:
    """The last evaluation, checkpoint and sample; or, after a signal, the checkpoint alone."""
    if not interrupts.received and ("evaluation", done) not in session.told:
        evaluated = session.evaluate(done, interrupts)
        yield from () if evaluated is None else (evaluated,)
    if session.checkpoint is None or done > session.first_step:
        yield from session.save(done)
    yield from session.saved(wait=True)
    assert session.checkpoint is not None
    if interrupts.received:
        yield Interrupted(done, session.checkpoint, interrupts.received)
        return
    if session.setup.is_writing and ("sample", done) not in session.told:
        yield session.sample(done)
    yield session.finished(done)


def _is_due(done: int, interval: int) -> bool:
    return interval > 0 and done % interval == 0


def _check_finite(event: Step, session: Session) -> None:
    for quantity, value in (("loss", event.loss), ("gradient norm", event.gradient_norm)):
        if value is not None and not math.isfinite(value):
            raise NonFinite(quantity, value, event.step, session.last_good_checkpoint())


def _oddity(event: Step, vocab_size: int) -> str:
    """What is wrong with a step's figures, if anything is."""
    if event.step == 0 and is_unusual_start(event.loss, vocab_size):
        return (
            f"the loss at step 0 is {event.loss:.4f}, not within 2 % of ln(vocabulary) = {math.log(vocab_size):.4f}: "
            "the initialisation is too large, or ids repeat in the data"
        )
    if event.mfu is not None and event.mfu > 1:
        return f"MFU is {event.mfu:.3f}, above 1: the peak it is measured against is too low"
    return ""
