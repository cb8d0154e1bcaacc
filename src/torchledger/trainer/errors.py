"""What can go wrong in a training run, as one tree. Data has its own errors (`TokenFileError`, `PrepareError`).

TrainError(ValueError)
    SetupError          the run cannot begin as configured
    ForeignWeightsError weights of another project that cannot be read, written, or do not fit
    RunFolderError      a run folder that is taken, missing, damaged or cannot be written to
    CheckpointError     a checkpoint that cannot be saved or read
        CheckpointMismatch   it belongs to another model
        ResumeRefused        it would go on, but not bit for bit
    NonFinite           a loss or gradient that is not a number
    OutOfMemory         the device has no memory left
    Nondeterministic    deterministic mode met an operation that does not repeat
    RankLost            another rank has ended
"""

from pathlib import Path

__all__ = [
    "CheckpointError",
    "CheckpointMismatch",
    "ForeignWeightsError",
    "NonFinite",
    "Nondeterministic",
    "OutOfMemory",
    "RankLost",
    "ResumeRefused",
    "RunFolderError",
    "SetupError",
    "TrainError",
]


class TrainError(ValueError):
    """A training run that cannot begin or go on; the message says why and what to do."""


class SetupError(TrainError):
    """A run that cannot begin as configured."""


class ForeignWeightsError(TrainError):
    """Weights of another project that cannot be read, written, or do not fit the model; the message names them."""


class RunFolderError(TrainError):
    """A run folder that is taken, missing, damaged, in use, or cannot be written to."""


class CheckpointError(TrainError):
    """A checkpoint that cannot be saved or read. Earlier checkpoints are untouched."""


class CheckpointMismatch(CheckpointError):
    """A checkpoint of another model; the message names the fields that differ."""


class ResumeRefused(CheckpointError):
    """A resumed run that would not give the bits of the uninterrupted one; the message names what has changed."""


class NonFinite(TrainError):
    """A loss, gradient norm or weight that is infinite or not a number.

    Attributes:
        step: the update at which it appeared.
        checkpoint: the last good checkpoint, if there is one.
        count: how many steps in a row it was so.
    """

    def __init__(self, quantity: str, value: float | None, step: int, checkpoint: Path | None, count: int = 1) -> None:
        self.step, self.checkpoint, self.count = step, checkpoint, count
        good = "there is no checkpoint yet" if checkpoint is None else f"the last good checkpoint is {checkpoint}"
        what = "not all finite" if value is None else str(value)
        verb = "are" if value is None else "is"
        row = "" if count == 1 else f", the {count}. such step in a row"
        super().__init__(
            f"the {quantity} {verb} {what} at step {step}{row}: training stopped, {good}; lower the learning rate, "
            "lengthen the warm-up, or clip the gradients more"
        )


class Nondeterministic(TrainError):
    """Deterministic mode met an operation that torch cannot do the same way twice.

    Attributes:
        step: the update that was running; `None` while the model was built.
    """

    def __init__(self, what: str, step: int | None) -> None:
        self.step = step
        when = "building the model" if step is None else f"step {step}"
        super().__init__(f"{what} ({when}); set deterministic = false, or do without that operation")


class OutOfMemory(TrainError):
    """The device has no memory left.

    Attributes:
        step: the update that was running; `None` while the model was built.
        requested_bytes: how much was asked for when it failed, where the allocator told.
    """

    def __init__(self, step: int | None, requested_bytes: int | None) -> None:
        self.step, self.requested_bytes = step, requested_bytes
        when = "building the model" if step is None else f"step {step}"
        asked = "" if requested_bytes is None else f" when {requested_bytes:,} more bytes were asked for"
        super().__init__(
            f"out of memory at {when}{asked}; raise recipe.accumulation_steps (smaller micro-batches), set "
            "recipe.recompute to full, or shorten recipe.sequence_length"
        )


class RankLost(TrainError):
    """Another rank has ended, or cannot be reached any more.

    Attributes:
        checkpoint: the last whole checkpoint, if there is one.
    """

    def __init__(self, reason: str, checkpoint: Path | None) -> None:
        self.checkpoint = checkpoint
        left = "there is no checkpoint yet" if checkpoint is None else f"the last whole checkpoint is {checkpoint}"
        super().__init__(
            f"another rank has ended or cannot be reached: training stopped, {left}; look at what that rank said "
            f"({reason})"
        )
