"""Which rank this process is, as `torchrun` says; what the first rank tells the others, and how they leave."""

from __future__ import annotations

import contextlib
import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from torchledger.trainer.process_group import Crew
    from torchledger.trainer.run_folder import RunFolder
    from torchledger.trainer.setup import Setup

_BEGIN = "begin"


def find_crew() -> Crew | None:
    """This process among those that `torchrun` started; nothing where it is the only one.

    Raises:
        UsageError: the environment says something that cannot be.
    """
    size = os.environ.get("WORLD_SIZE", "1")
    if size == "1" or "RANK" not in os.environ:
        return None
    from torch.distributed.rendezvous import rendezvous

    from torchledger.trainer.process_group import Crew
    from torchledger.trainer.ranks import Ranks

    try:
        ranks = Ranks(int(os.environ["RANK"]), int(size), int(os.environ.get("LOCAL_RANK", "0")))
        store, _, _ = next(iter(rendezvous("env://")))
    except (ValueError, AssertionError) as error:
        raise click.UsageError(f"the environment of torchrun is not whole: {error}") from error
    return Crew(ranks, store)


@contextlib.contextmanager
def leading(crew: Crew | None) -> Iterator[None]:
    """Around all that the first rank does: where it ends before training begins, the others are let go."""
    try:
        yield
    finally:
        if crew is not None and _BEGIN not in crew.told:
            crew.tell(_BEGIN, None)


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
    from torchledger import config
    from torchledger.cli.failure import SIGNALLED
    from torchledger.cli.measurement import measure_steps
    from torchledger.trainer import RunConfig, resolve, train
    from torchledger.trainer.events import Event, Finished, Interrupted
    from torchledger.trainer.process_group import process_group
    from torchledger.trainer.run_folder import RunFolder

    asked: dict[str, Any] | None = crew.hear(_BEGIN)
    if asked is None:
        return 0
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
