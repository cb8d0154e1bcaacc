"""The training loop: when to step, evaluate, save, stop. It yields what happens and never prints."""

import contextlib
import datetime as dt
import math
from collections.abc import Iterator
from pathlib import Path

from torchledger.trainer.determinism import deterministic
from torchledger.trainer.environment import environment
from torchledger.trainer.errors import NonFinite
from torchledger.trainer.events import Event, Interrupted, Step
from torchledger.trainer.fallback import newest_whole
from torchledger.trainer.interrupts import Interrupts
from torchledger.trainer.lost_ranks import telling_lost_ranks
from torchledger.trainer.oddities import impossible_mfu, unusual_start
from torchledger.trainer.run_folder import RunFolder
from torchledger.trainer.session import Session
from torchledger.trainer.setup import Setup
from torchledger.trainer.utilization import Yardstick

__all__ = ["begin_again", "new_run", "resume_point", "train"]


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


def begin_again(setup: Setup, folder: RunFolder) -> None:
    """Begin a run that has saved nothing once more, in its folder: what is known before the first step is written anew.

    Args:
        setup: the run as it begins now.
        folder: from `RunFolder.open`, without a `resume_point`.

    Raises:
        RunFolderError: another process trains in it, or it cannot be written to.
    """
    with folder.locked():
        folder.write_start(setup.config, environment(setup, dt.datetime.now(dt.UTC)), setup.data.tokenizer_path)


def resume_point(folder: RunFolder) -> Path | None:
    """The checkpoint that a resumed run goes on from: the newest whole one; nothing where the run has never saved one.

    A run that has saved nothing begins at step 0 (`begin_again`): its configuration says all that decides its bits.

    Raises:
        CheckpointError: it has saved some and none is whole; the run has to begin anew, in a new folder. What is wrong
            with those that are there is named.
    """
    return None if folder.has_begun and not folder.has_saved else newest_whole(folder.checkpoints)


def train(
    setup: Setup,
    folder: RunFolder,
    *,
    checkpoint: Path | None = None,
    allow_changes: bool = False,
    yardstick: Yardstick = Yardstick(),  # noqa: B008  # a frozen value
) -> Iterator[Event]:
    """Train, and yield each event as it happens. The last is `Finished`, or `Interrupted` after Ctrl-C or SIGTERM.

    Step n reads batch n, has learning rate n and random stream n, so that a run resumed from any checkpoint gives the
    losses of the uninterrupted one bit for bit. Evaluation and saving are in no step's time and touch no stream.

    Args:
        setup: the run, from `resolve`.
        folder: its folder, from `new_run` or `RunFolder.open`.
        checkpoint: where to go on from (`resume_point`); nothing begins at step 0, and drops the rows of an earlier
            beginning. Where it is damaged, the newest before it that loads is taken, and a warning names both.
        allow_changes: go on from a checkpoint whose run differs in what decides bits; each change is warned of.
        yardstick: what MFU and HFU are measured by; nothing is known of them without.

    Raises:
        NonFinite: loss or gradient norm were no numbers for as many steps in a row as the configuration has patience,
            or a weight is none; the last good checkpoint is named.
        Nondeterministic: deterministic mode, and an operation that is not.
        OutOfMemory: the device has no memory left.
        CheckpointError: a checkpoint cannot be saved (a full disk; earlier ones are whole) or read, or does not fit.
        RankLost: another rank has ended.
        RunFolderError: another process trains in the folder, or it cannot be written to.
        TokenFileError: the data cannot be read, or has an id beyond the vocabulary.
    """
    first = setup.ranks.is_first
    lock = folder.locked() if first else contextlib.nullcontext()
    fixed = deterministic(setup.config.deterministic)
    with lock, fixed, Interrupts(shared=not setup.ranks.is_alone) as interrupts, telling_lost_ranks(folder):
        session = Session(
            setup,
            folder,
            checkpoint=checkpoint,
            allow_changes=allow_changes,
            yardstick=yardstick,
        )
        with contextlib.closing(session):
            if session.changes and first:
                folder.write_config(setup.config)  # else the next resume would be held against what no longer holds
            yield session.started()
            for change in session.changes:
                yield session.warn(session.first_step, f"not bit for bit the uninterrupted run: {change}")
            for words in session.oddities:
                yield session.warn(session.first_step, words)
            yield from _steps(session, interrupts)


def _steps(session: Session, interrupts: Interrupts) -> Iterator[Event]:
    config, num_steps = session.setup.config, session.setup.recipe.num_steps
    done = session.first_step
    flagged = False
    if message := session.look_over():
        yield session.warn(0, message)
    for step in range(session.first_step, num_steps):
        event = session.advance(step, interrupts)
        done = step + 1
        yield event
        yield from session.saved()
        if event.skipped:
            yield session.warn(done, _skipped(event, session))
        yield from session.spikes()
        if message := unusual_start(event, session.setup.spec.vocab_size, config.initial_weights):
            yield session.warn(done, message)
        if not flagged and (message := impossible_mfu(event)):
            flagged = True
            yield session.warn(done, message)
        if _is_due(done, config.eval_interval) and done < num_steps and not interrupts.received:
            yield from _evaluation(session, interrupts, done)
        if interrupts.received:
            break
        if done < num_steps and (_is_due(done, config.checkpoint_interval) or _is_due(done, config.permanent_interval)):
            yield from session.save(done)
    yield from _end(session, interrupts, done)


def _end(session: Session, interrupts: Interrupts, done: int) -> Iterator[Event]:
    """The last evaluation, checkpoint and sample; or, after a signal, the checkpoint alone."""
    if not interrupts.received:
        yield from _evaluation(session, interrupts, done)
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


def _evaluation(session: Session, interrupts: Interrupts, done: int) -> Iterator[Event]:
    """Validation and questions after `done` updates, each once in the life of a run."""
    for kind, ask in (("evaluation", session.evaluate), ("choices", session.answer)):
        if (kind, done) not in session.told:
            told = ask(done, interrupts)
            yield from () if told is None else (told,)


def _skipped(event: Step, session: Session) -> str:
    """What is said of a step that was skipped.

    Raises:
        NonFinite: it was one too many.
    """
    quantity, value = ("gradient norm", event.gradient_norm) if math.isfinite(event.loss) else ("loss", event.loss)
    count, most = session.tally.streak, session.setup.config.max_non_finite
    if count >= most:
        raise NonFinite(quantity, value, event.step, session.last_good_checkpoint(), count)
    return (
        f"the {quantity} is {value}: the update of step {event.step} was skipped, weights and optimizer are as before; "
        f"{count} in a row, training stops at {most}"
    )
