"""Which rank this process is, as `torchrun` says; what the first rank tells the others, and how they end.

What all ranks meet is told once, by the first of them; what a rank alone meets, it tells itself.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from torchledger.trainer.process_group import Crew
    from torchledger.trainer.run_folder import RunFolder
    from torchledger.trainer.setup import Setup

_BEGIN, _FAILED, _HEARD = "begin", "failed", "torchledger/heard"
_STORE_S = 30.0  # for torchrun to answer: it may have been killed, and its ranks would try for many minutes
_WORDS_S = 3.0  # for the first rank to say what it failed of, where others failed too


def find_crew() -> Crew | None:
    """This process among those that `torchrun` started; nothing where it is the only one.

    Raises:
        UsageError: the environment says something that cannot be.
        Failed: torchrun is no longer there.
    """
    size = os.environ.get("WORLD_SIZE", "1")
    if size == "1" or "RANK" not in os.environ:
        return None
    from torch.distributed import DistError
    from torch.distributed.constants import default_pg_timeout
    from torch.distributed.rendezvous import rendezvous

    from torchledger.cli.failure import Failed
    from torchledger.trainer.launcher import following
    from torchledger.trainer.process_group import Crew
    from torchledger.trainer.ranks import Ranks

    is_there = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # torchrun's own store is, before its ranks
    patience = dt.timedelta(seconds=_STORE_S) if is_there else default_pg_timeout
    try:
        ranks = Ranks(int(os.environ["RANK"]), int(size), int(os.environ.get("LOCAL_RANK", "0")))
        with following():
            store, _, _ = next(iter(rendezvous("env://", timeout=patience)))
        store.set_timeout(default_pg_timeout)
    except (ValueError, AssertionError) as error:
        raise click.UsageError(f"the environment of torchrun is not whole: {error}") from error
    except DistError as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise Failed(f"torchrun cannot be reached at {where}: it has ended, or its host has") from error
    return Crew(ranks, store)


def is_heard() -> bool:
    """Whether this process, the first or only one, speaks for all where each finds the same, as in a wrong option."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


def let_go(crew: Crew, code: int) -> None:
    """The first rank has ended with this exit code; where training had not begun, the others end with it too."""
    if _BEGIN not in crew.told:
        with contextlib.suppress(RuntimeError):  # torchrun has ended, and the store with it
            crew.tell(_BEGIN, {"code": code})
            end = time.monotonic() + _WORDS_S
            while crew.store.add(_HEARD, 0) < crew.ranks.size - 1 and time.monotonic() < end:
                time.sleep(0.01)  # where one has ended torchrun ends the others, who would leave by a signal


def tell_failure(crew: Crew, error: Exception, *, debug: bool) -> int:
    """Tell of an error that ends this rank, unless the first rank, or any, has said the same; the exit code.

    Each rank tells a lost one by other words, and one is enough.
    """
    from torchledger.cli.failure import described

    _leave_unasked()
    text, code = described(error, debug=debug)
    kind = type(error).__name__
    if not _is_told(crew, kind, text):
        if debug:
            traceback.print_exception(error)
        if text:
            click.echo(text if crew.ranks.is_first else f"rank {crew.ranks.rank}: {text}", err=True)
    if crew.ranks.is_first:
        with contextlib.suppress(RuntimeError):
            crew.tell(_FAILED, {"kind": kind, "text": text})
    return code


def _leave_unasked() -> None:
    """Take no notice of torchrun, which asks those to end who are left: this one is about to."""
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _is_told(crew: Crew, kind: str, text: str) -> bool:
    """Whether somebody tells it: the first rank, or of the others the one that comes first."""
    if crew.ranks.is_first:
        return False
    is_loss = kind == "RankLost"
    try:
        crew.store.set_timeout(dt.timedelta(seconds=_WORDS_S))
        with contextlib.suppress(RuntimeError):  # it has nothing to say, or is no more
            said = json.loads(crew.store.get(f"torchledger/{_FAILED}"))
            return is_loss or said["text"].startswith(text)  # of memory it knows more: what was predicted, what is free
        return bool(crew.store.add(f"torchledger/{_FAILED}/{kind if is_loss else text}", 1) > 1)
    except RuntimeError:  # nobody is there to ask
        return False


@contextlib.contextmanager
def together(
    crew: Crew | None, setup: Setup, folder: RunFolder, checkpoint: Path | None, allow_changes: bool
) -> Iterator[None]:
    """The first rank lets the others begin, and is in a process group with them while inside."""
    from torchledger import config
    from torchledger.trainer.process_group import process_group

    if crew is not None:
        asked = {
            "config": config.to_toml(setup.config),
            "folder": str(folder.path),
            "checkpoint": None if checkpoint is None else str(checkpoint),
            "allow_changes": allow_changes,
        }
        crew.tell(_BEGIN, asked)
    with process_group(crew, setup.device):
        yield


def follow(crew: Crew) -> int:
    """All that a rank does which is not the first: train with the others, and measure with them. Says nothing.

    Returns:
        The exit code.
    """
    import tomllib

    from torchledger import config
    from torchledger.cli.failure import SIGNALLED
    from torchledger.cli.measurement import measure_steps
    from torchledger.trainer import RunConfig, resolve, train
    from torchledger.trainer.events import Event, Finished, Interrupted
    from torchledger.trainer.process_group import process_group
    from torchledger.trainer.run_folder import RunFolder

    asked: dict[str, Any] = crew.hear(_BEGIN)
    if "code" in asked:
        _leave_unasked()
        crew.store.add(_HEARD, 1)
        return int(asked["code"])
    setup = resolve(config.load(None, RunConfig, table=tomllib.loads(asked["config"])).value, crew.ranks)
    checkpoint = None if asked["checkpoint"] is None else Path(asked["checkpoint"])
    last: Event | None = None
    with process_group(crew, setup.device):
        folder = RunFolder(Path(asked["folder"]))
        for event in train(setup, folder, checkpoint=checkpoint, allow_changes=asked["allow_changes"]):
            last = event
        if isinstance(last, Finished):
            measure_steps(setup)
    if isinstance(last, Interrupted):
        return SIGNALLED + last.signal
    return 0


def leave(code: int) -> NoReturn:
    """End this rank's process at once: threads of its connections may outlive the group, and abort what ends later."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
