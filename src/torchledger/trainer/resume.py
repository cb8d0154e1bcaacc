"""Whether a run may go on from a checkpoint, asked before anything is measured and again when it does; and going on."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchledger.trainer.agreement import any_rank
from torchledger.trainer.checkpoint import load_extra, load_optimizer, load_weights
from torchledger.trainer.errors import CheckpointMismatch, ResumeRefused
from torchledger.trainer.fallback import newest_usable, set_aside
from torchledger.trainer.identity import Change
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.selfcheck import check_loss, compare
from torchledger.trainer.setup import Setup
from torchledger.trainer.step import TrainStep

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["Resumed", "resume", "resume_changes"]


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a session begins.

    Attributes:
        first_step: the update that comes next.
        checkpoint: what was loaded; nothing where the run begins.
        changes: what differs from the run that saved it.
        oddities: what there is to say of the files, in words.
    """

    first_step: int = 0
    checkpoint: Path | None = None
    changes: tuple[Change, ...] = ()
    oddities: tuple[str, ...] = ()


def resume(
    step: TrainStep, setup: Setup, checkpoint: Path | None, group: "ProcessGroup | None", *, allow_changes: bool = False
) -> Resumed:
    """Load a checkpoint into model and optimizer; where it is damaged, the newest before it that loads.

    Args:
        step: what is loaded into.
        setup: the run as it goes on.
        checkpoint: where it goes on from; nothing begins, and loads nothing.
        group: the ranks that load together; nothing is one process.
        allow_changes: go on even where the run will not be bit for bit the uninterrupted one.

    Raises:
        CheckpointMismatch, ResumeRefused: see `resume_changes`; or the self-check gave another loss.
        CheckpointError: neither it nor any before it can be read; each is named.
    """
    if checkpoint is None:
        return Resumed()
    usable = newest_usable(
        checkpoint,
        lambda path: resume_changes(path, setup, allow_changes=allow_changes),
        lambda path: _load(step, setup, path, group, allow_changes=allow_changes),
        lambda is_damaged: any_rank(is_damaged, setup.device, group),
    )
    if setup.ranks.is_first:
        set_aside(usable.damaged)
    first_step, changes, self_check = usable.loaded
    told = (*(f"{each.reason}; going on from {usable.path}" for each in usable.damaged), self_check)
    return Resumed(first_step, usable.path, changes, tuple(filter(None, told)))


def _load(
    step: TrainStep, setup: Setup, path: Path, group: "ProcessGroup | None", *, allow_changes: bool
) -> tuple[int, tuple[Change, ...], str]:
    """Load one checkpoint: the update that comes next, what differs, what the self-check says."""
    changes = resume_changes(path, setup, allow_changes=allow_changes)
    manifest = load_weights(path, step.model, group)
    load_optimizer(path, manifest, step.model, step.optimizer, group)
    if step.loss_scale is not None:
        step.load(load_extra(path, manifest))
    loss = check_loss(step, setup.device)
    return manifest.step, changes, compare(str(path), manifest, loss, setup.recipe.precision, is_same=not changes)


def resume_changes(checkpoint: Path, setup: Setup, *, allow_changes: bool = False) -> tuple[Change, ...]:
    """What keeps a run that goes on as `setup` says from giving the bits of the uninterrupted one. Reads no weights.

    Args:
        checkpoint: where it would go on from.
        setup: the run as it would go on.
        allow_changes: give the changes back instead of refusing them.

    Raises:
        CheckpointMismatch: it is of another model; the differing fields are named.
        ResumeRefused: there are changes, each is named.
        CheckpointError: it is missing, half or damaged.
    """
    manifest = Manifest.read(checkpoint)
    of_model = manifest.identity.model_changes(setup.identity)
    if of_model:
        raise CheckpointMismatch(f"the checkpoint {checkpoint} is of another model: {'; '.join(map(str, of_model))}")
    changes = manifest.identity.changes(setup.identity, manifest.step)
    if changes and not allow_changes:
        listed = "".join(f"\n  {change}" for change in changes)
        raise ResumeRefused(
            f"resuming {checkpoint} would not give the bits of the uninterrupted run; allow the changes "
            f"(--allow-changes) to go on all the same, or undo them:{listed}"
        )
    return changes
