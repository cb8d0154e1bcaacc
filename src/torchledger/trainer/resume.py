"""Whether a run may go on from a checkpoint: asked before anything is measured, and again when it does."""

from pathlib import Path

from torchledger.trainer.errors import CheckpointMismatch, ResumeRefused
from torchledger.trainer.identity import Change
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.setup import Setup

__all__ = ["resume_changes"]


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
