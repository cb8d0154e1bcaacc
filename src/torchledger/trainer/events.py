"""What the training loop tells while it runs. The loop never prints; whoever listens draws."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

from torchledger.trainer.counters import Counters

__all__ = [
    "Answered",
    "Evaluated",
    "Event",
    "Finished",
    "Interrupted",
    "Sampled",
    "Saved",
    "Spiked",
    "Started",
    "Step",
    "Warned",
    "row_of",
]


@dataclass(frozen=True, slots=True)
class Started:
    """The model is built, and on a resume loaded; the first step comes next.

    Attributes:
        folder: the run's folder.
        num_parameters: trained numbers, a tied head counted once.
        num_steps: steps of the whole run.
        first_step: the update that comes next; 0 unless resumed.
        tokens_per_step: tokens of one step, all micro-batches together.
        epochs: how many times the whole run passes over the training data.
        resumed_from: the checkpoint that was loaded.
        assumptions: what was decided without being asked.
        convention: what MFU counts and is held against; empty where there is no MFU.
        num_devices: how many share each step.
    """

    folder: Path
    num_parameters: int
    num_steps: int
    first_step: int
    tokens_per_step: int
    epochs: float
    resumed_from: Path | None
    assumptions: tuple[str, ...]
    convention: str = ""
    num_devices: int = 1


@dataclass(frozen=True, slots=True)
class Step:
    """One update was done, or skipped because its figures were no numbers.

    Attributes:
        step: its number, from 0.
        loss: mean cross-entropy of its tokens before the update, nats.
        learning_rate: of this update.
        gradient_norm: global norm before clipping; nothing where the recipe does not clip.
        seconds: waiting for data, forward, backward and update; no evaluation, no saving.
        data_wait_s: the part of it that was waiting for data.
        num_tokens: tokens of the step, all micro-batches and ranks together.
        tokens_per_s: tokens of the step over its seconds.
        mfu: model FLOPs of the step over its seconds and the peak; nothing where either was not given.
        hfu: the same with the FLOPs that the kernels execute, recomputed ones included.
        resident_bytes: memory of the process, read at most every quarter of a second.
        peak_resident_bytes: most memory the process had had by then.
        device_peak_bytes: most memory that tensors have taken on the GPU; nothing on a CPU.
        epoch: passes over the training data so far.
        warm_up: one of the session's first steps, which no average takes in.
        remaining_s: seconds that the steps to come will take at the present pace.
        document_pairs: Σ Lᵢ² over the documents in the step's sequences, out of B·T² pairs of tokens; nothing where
            documents are not kept apart.
        skipped: whether loss or gradient norm was no number, so that nothing was updated.
        session: which session of the run did it, from 0; a resume begins another.
    """

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float | None
    seconds: float
    data_wait_s: float
    num_tokens: int
    tokens_per_s: float
    mfu: float | None
    hfu: float | None
    resident_bytes: int
    peak_resident_bytes: int
    device_peak_bytes: int | None
    epoch: float
    warm_up: bool
    remaining_s: float
    document_pairs: int | None = None
    skipped: bool = False
    session: int = 0


@dataclass(frozen=True, slots=True)
class Spiked:
    """A spike began: a loss or gradient norm far above those before it. Nothing was done about it.

    Attributes:
        step: the update, from 0.
        quantity: `loss` or `gradient norm`.
        value: what it was.
        usual: the median of the steps before.
        score: how many robust deviations it lies above that; of the gradient norm's logarithm.
        checkpoint: the last one before the spike, for who wants to go back; nothing if there is none.
    """

    step: int
    quantity: str
    value: float
    usual: float
    score: float
    checkpoint: Path | None


@dataclass(frozen=True, slots=True)
class Answered:
    """The multiple-choice questions were answered.

    Attributes:
        step: updates done.
        num_questions: how many there are.
        accuracy: share where the likeliest ending is the right one.
        normalized_accuracy: share where the likeliest for its length in characters is.
        chance: the share that guessing gets right.
        seconds: what it took.
    """

    step: int
    num_questions: int
    accuracy: float
    normalized_accuracy: float
    chance: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The fixed validation windows were predicted.

    Attributes:
        step: updates done.
        validation_loss: mean cross-entropy over `num_tokens`, nats.
        num_tokens: how many targets there were.
        seconds: what it took.
    """

    step: int
    validation_loss: float
    num_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint is on disk.

    Attributes:
        step: updates done.
        path: its folder.
        num_bytes: its size.
        seconds: what it took.
    """

    step: int
    path: Path
    num_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Sampled:
    """The model wrote a text.

    Attributes:
        step: updates done.
        prompt: what it continued.
        text: what it wrote, the prompt left out.
        seconds: what it took.
    """

    step: int
    prompt: str
    text: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Warned:
    """Something worth knowing that does not stop the run."""

    step: int
    message: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A signal asked to stop: the step was finished and saved. The last event of the run.

    Attributes:
        step: updates done.
        checkpoint: where to go on from.
        signal: number of the signal; 2 is Ctrl-C, 15 a request to terminate.
    """

    step: int
    checkpoint: Path
    signal: int


@dataclass(frozen=True, slots=True)
class Finished:
    """All steps are done. The last event of the run.

    Attributes:
        step: updates done.
        initial_loss: loss of the very first update, before it.
        final_loss: loss of the last one.
        validation_loss: after the last one.
        step_s: median seconds of this session's steps, warm-up left out; nothing where none remains. Of a session
            without steps, of the last that had some, unless something has changed since.
        tokens_per_s: at that median.
        mfu: at that median.
        mfu_causal: at that median, with only the pairs of tokens counted that the mask lets see each other.
        hfu: at that median.
        data_wait_share: seconds waited for data over all seconds of this session's steps.
        wall_s: seconds of the whole session, evaluation and saving included.
        peak_resident_bytes: most memory the process has had.
        session: what this session counted.
        lifetime: what all sessions of the run counted, each step once.
        checkpoint: the last one.
    """

    step: int
    initial_loss: float | None
    final_loss: float | None
    validation_loss: float
    step_s: float | None
    tokens_per_s: float | None
    mfu: float | None
    mfu_causal: float | None
    hfu: float | None
    data_wait_share: float | None
    wall_s: float
    peak_resident_bytes: int
    session: Counters
    lifetime: Counters
    checkpoint: Path

    @property
    def figures(self) -> Mapping[str, Any]:
        """The figures by name, for JSON."""
        own = {name: getattr(self, name) for name in self.__slots__ if name != "checkpoint"}
        return own | {"session": asdict(self.session), "lifetime": asdict(self.lifetime)}


def row_of(event: Step) -> dict[str, Any]:
    """A step's fields by name, for JSON: what `dataclasses.asdict` gives where nothing is nested, ten times as fast."""
    return {name: getattr(event, name) for name in _STEP_FIELDS}


_STEP_FIELDS = tuple(field.name for field in fields(Step))

Event: TypeAlias = Started | Step | Spiked | Evaluated | Answered | Saved | Sampled | Warned | Interrupted | Finished
