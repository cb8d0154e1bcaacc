"""A run in progress: model, data and files of one process, and what it does with them. `loop` decides when."""

import contextlib
import math
import re
import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from torchledger.trainer.checkpoint import latest_checkpoint, load_optimizer, load_weights
from torchledger.trainer.errors import CheckpointError, OutOfMemory
from torchledger.trainer.events import Evaluated, Finished, Sampled, Saved, Started, Step, Warned
from torchledger.trainer.identity import Change
from torchledger.trainer.interrupts import Interrupts
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.metrics import MetricsWriter, read_metrics
from torchledger.trainer.resident import peak_resident_bytes, resident_bytes
from torchledger.trainer.resume import resume_changes
from torchledger.trainer.run_folder import RunFolder
from torchledger.trainer.sample import sample
from torchledger.trainer.saving import Saver
from torchledger.trainer.schedule import learning_rate
from torchledger.trainer.seeds import dropout_seed
from torchledger.trainer.selfcheck import check_loss, compare
from torchledger.trainer.setup import Setup
from torchledger.trainer.step import StepResult, build_step, micro_batches
from torchledger.trainer.stream import training_batches, validation_batches
from torchledger.trainer.validation import evaluate

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["Session", "out_of_memory"]

WARM_UP_STEPS = 3  # first steps of a session: kernels are chosen, buffers first touched
RECENT_STEPS = 50  # the pace is the median of these


class Session:
    """Everything that one process holds while it trains. Its methods do one thing each and return the event of it.

    Args:
        setup: the run.
        folder: its folder.
        checkpoint: where to go on from; nothing begins anew.
        allow_changes: go on even where the run will not be bit for bit the uninterrupted one.
        flops_per_step: model FLOPs of one step, for MFU.
        peak_flops_per_s: what MFU is measured against.

    Raises:
        CheckpointError: the checkpoint cannot be read, is of another model, or of a run that differs.
        OutOfMemory: the model does not fit.
        TokenFileError: the data cannot be read.
        RunFolderError: the folder cannot be written to.
    """

    def __init__(
        self,
        setup: Setup,
        folder: RunFolder,
        *,
        checkpoint: Path | None,
        allow_changes: bool,
        flops_per_step: float | None,
        peak_flops_per_s: float | None,
    ) -> None:
        self.setup, self.folder, self.checkpoint = setup, folder, checkpoint
        self._begin = time.perf_counter()
        self._peak_flops = (flops_per_step, peak_flops_per_s)
        try:
            with setup.device:
                self.step = build_step(setup.spec, setup.local_recipe, strategy=setup.strategy)
            self.changes: tuple[Change, ...] = ()
            self.self_check = ""
            self.first_step = self._load(checkpoint, allow_changes) if checkpoint is not None else 0
        except (RuntimeError, MemoryError) as error:
            raise out_of_memory(error, None) or error from error
        config = setup.config
        self._saver = Saver(
            folder.checkpoints,
            keep=config.keep,
            permanent_interval=config.permanent_interval,
            asynchronous=config.async_checkpoint,
            group=self._group(),
        )
        self.batches = training_batches(setup, self.first_step)
        self.validation = validation_batches(setup)
        self._writer = MetricsWriter(folder.metrics_path, self.first_step) if setup.ranks.is_first else None
        self._wait_for_all()  # nobody reads what the first rank has not cut off yet
        rows = read_metrics(folder.metrics_path)
        self._initial_loss = next((row["loss"] for row in rows if row["kind"] == "step" and row["step"] == 0), None)
        self.validation_loss = next((r["validation_loss"] for r in rows[::-1] if r["kind"] == "evaluation"), None)
        self._loss = next((row["loss"] for row in rows[::-1] if row["kind"] == "step"), None)
        #: What earlier sessions have written down already, as (kind, updates done): none of it is done twice.
        self.told = {(row["kind"], row["step"]) for row in rows}
        self._earlier = [row["seconds"] for row in rows if row["kind"] == "step" and not row["warm_up"]]
        self._seconds: list[float] = []
        self._training_s = 0.0

    def started(self) -> Started:
        """What is about to run."""
        setup, recipe = self.setup, self.setup.recipe
        return Started(
            folder=self.folder.path,
            num_parameters=sum(p.numel() for p in self.step.model.parameters()),
            num_steps=recipe.num_steps,
            first_step=self.first_step,
            tokens_per_step=recipe.tokens_per_step,
            epochs=setup.epochs,
            resumed_from=self.checkpoint,
            assumptions=setup.assumptions,
        )

    def advance(self, step: int, interrupts: Interrupts) -> Step:
        """Do update `step`; on many ranks they tell each other meanwhile whether any has got a signal.

        Raises:
            OutOfMemory: on the device.
            TokenFileError: the data cannot be read, or has an id beyond the vocabulary.
        """
        begin, waited = time.perf_counter(), self.batches.data_wait_s
        parallel = self.step.parallel
        if parallel is not None:
            parallel.asked = interrupts.noted or 0
        try:
            result = self._update(step)
            if parallel is not None:
                interrupts.agree(parallel.signal)
            # Reading them waits for the device, so the clock is read after it.
            loss = result.loss.item()
            norm = None if result.gradient_norm is None else result.gradient_norm.item()
        except (RuntimeError, MemoryError) as error:
            raise out_of_memory(error, step) or error from error
        event = self._event(step, loss, norm, time.perf_counter() - begin, self.batches.data_wait_s - waited)
        self._loss = loss
        self._initial_loss = loss if step == 0 else self._initial_loss
        self._write({"kind": "step", **asdict(event)})
        return event

    def evaluate(self, done: int, interrupts: Interrupts) -> Evaluated | None:
        """Predict the validation windows after `done` updates; nothing if a signal came meanwhile."""
        begin = time.perf_counter()
        stop = lambda: interrupts.received is not None  # noqa: E731  # a question of one line
        loss, num_tokens = evaluate(self.step.model, self.validation, self.setup.recipe, stop, self.step.parallel)
        if num_tokens < self.validation.num_tokens:
            return None
        self.validation_loss = loss
        event = Evaluated(done, loss, num_tokens, time.perf_counter() - begin)
        self._write({"kind": "evaluation", **asdict(event)})
        return event

    def save(self, done: int) -> list[Saved]:
        """Write a checkpoint after `done` updates, or begin to; what has come to disk by then.

        Raises:
            CheckpointError: a full disk, or a folder that cannot be written to.
            OutOfMemory: no memory for the copy that is written while training goes on.
        """
        metrics = {"loss": self._loss, "validation_loss": self.validation_loss}
        check = check_loss(self.step, self.setup.device)
        manifest = Manifest(done, self.setup.identity, metrics, check_loss=check)
        try:
            self._saver.save(self.step.model, self.step.optimizer, manifest)
        except (RuntimeError, MemoryError) as error:
            raise out_of_memory(error, done) or error from error
        return self.saved()

    def saved(self, *, wait: bool = False) -> list[Saved]:
        """The checkpoints that have come to disk since this was last asked.

        Args:
            wait: until nothing is being written any more.

        Raises:
            CheckpointError: one could not be saved.
        """
        events = []
        for each in self._saver.wait() if wait else self._saver.finished():
            self.checkpoint = each.path
            event = Saved(each.step, each.path, each.num_bytes, each.seconds)
            self._write({"kind": "checkpoint", **asdict(event), "path": str(each.path)})
            events.append(event)
        return events

    def sample(self, done: int) -> Sampled:
        """Let the model write after `done` updates."""
        begin, config = time.perf_counter(), self.setup.config.sample
        recipe = self.setup.recipe
        text = sample(self.step.model, self.setup.data.tokenizer(), config, recipe, seed=recipe.seed, step=done)
        event = Sampled(done, config.prompt, text, time.perf_counter() - begin)
        self._write({"kind": "sample", **asdict(event)})
        return event

    def warn(self, done: int, message: str) -> Warned:
        """Note something worth knowing."""
        event = Warned(done, message)
        self._write({"kind": "warning", **asdict(event)})
        return event

    def finished(self, done: int) -> Finished:
        """The figures of the session."""
        assert self.checkpoint is not None
        assert self.validation_loss is not None
        seconds = self._seconds or self._earlier  # a run that was finished already has its earlier pace
        step_s = statistics.median(seconds) if seconds else None
        return Finished(
            step=done,
            initial_loss=self._initial_loss,
            final_loss=self._loss,
            validation_loss=self.validation_loss,
            step_s=step_s,
            tokens_per_s=None if step_s is None else self.setup.recipe.tokens_per_step / step_s,
            mfu=None if step_s is None else self._mfu(step_s),
            data_wait_share=self.batches.data_wait_s / self._training_s if self._training_s else None,
            training_s=self._training_s,
            wall_s=time.perf_counter() - self._begin,
            peak_resident_bytes=peak_resident_bytes(),
            checkpoint=self.checkpoint,
        )

    def last_good_checkpoint(self) -> Path | None:
        """The newest whole checkpoint of the run; one that is being written is waited for."""
        with contextlib.suppress(CheckpointError):
            self._saver.wait()
        return latest_checkpoint(self.folder.checkpoints)

    def close(self) -> None:
        """Close files and end threads."""
        self.batches.close()
        self._saver.close()
        if self._writer is not None:
            self._writer.close()

    def _write(self, row: dict[str, Any]) -> None:
        """A row of the metrics; of many ranks the first writes."""
        if self._writer is not None:
            self._writer.write(row)

    def _group(self) -> "ProcessGroup | None":
        """All ranks, where there are several."""
        if self.setup.ranks.is_alone:
            return None
        from torch.distributed import group  # a second of imports that only many ranks need

        return group.WORLD

    def _wait_for_all(self) -> None:
        if (ranks := self._group()) is not None:
            ranks.barrier().wait()

    def _load(self, checkpoint: Path, allow_changes: bool) -> int:
        self.changes = resume_changes(checkpoint, self.setup, allow_changes=allow_changes)
        manifest = load_weights(checkpoint, self.step.model, self._group())
        load_optimizer(checkpoint, manifest, self.step.model, self.step.optimizer, self._group())
        loss = check_loss(self.step, self.setup.device)
        precision = self.setup.recipe.precision
        self.self_check = compare(str(checkpoint), manifest, loss, precision, is_same=not self.changes)
        return manifest.step

    def _update(self, step: int) -> StepResult:
        recipe = self.setup.recipe
        batch = next(self.batches)
        if self.setup.spec.has_dropout:
            torch.manual_seed(dropout_seed(recipe.seed, step, self.setup.ranks.rank))
        return self.step(micro_batches(batch, self.setup.local_recipe.accumulation_steps), step)

    def _event(self, step: int, loss: float, norm: float | None, seconds: float, waited: float) -> Step:
        recipe = self.setup.recipe
        warm_up = step - self.first_step < WARM_UP_STEPS
        self._training_s += seconds
        if not warm_up:
            self._seconds.append(seconds)
        pace = statistics.median(self._seconds[-RECENT_STEPS:] or [seconds])
        on_cuda = self.setup.device.type == "cuda"
        return Step(
            step=step,
            loss=loss,
            learning_rate=learning_rate(recipe.optimizer, step, recipe.num_steps),
            gradient_norm=norm,
            seconds=seconds,
            data_wait_s=waited,
            tokens_per_s=recipe.tokens_per_step / seconds,
            mfu=self._mfu(seconds),
            resident_bytes=resident_bytes(),
            peak_resident_bytes=peak_resident_bytes(),
            device_peak_bytes=torch.cuda.max_memory_allocated(self.setup.device) if on_cuda else None,
            epoch=self.batches.epochs(step + 1),
            document_pairs=self.batches.squared_lengths(step) if recipe.document_mask else None,
            warm_up=warm_up,
            remaining_s=(recipe.num_steps - step - 1) * pace,
        )

    def _mfu(self, seconds: float) -> float | None:
        flops, peak = self._peak_flops
        return None if flops is None or peak is None else flops / seconds / peak


def out_of_memory(error: BaseException, step: int | None) -> OutOfMemory | None:
    """The error in our words if an allocator refused, else nothing.

    torch's CPU allocator raises a plain RuntimeError, known by its words only.
    """
    text = str(error)
    refused = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    if not refused and not re.search(r"can't allocate memory|not enough memory|out of memory", text):
        return None
    asked = re.search(r"allocate (\d+) bytes", text)
    return OutOfMemory(step, int(asked.group(1)) if asked else None)


def is_unusual_start(loss: float, vocab_size: int, tolerance: float = 0.02) -> bool:
    """Whether a loss at step 0 is further than `tolerance` from that of even odds, ln(vocabulary)."""
    return abs(loss / math.log(vocab_size) - 1) > tolerance
