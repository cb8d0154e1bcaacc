"""A run in progress: model, data and files of one process, and what it does with them. `loop` decides when."""

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchledger.trainer.activation_scale import activation_scales, unusual_scale
from torchledger.trainer.agreement import any_rank
from torchledger.trainer.checkpoint import latest_checkpoint
from torchledger.trainer.choices import answer
from torchledger.trainer.compiled import compile_model
from torchledger.trainer.errors import CheckpointError, NonFinite
from torchledger.trainer.events import (
    Answered,
    Evaluated,
    Finished,
    Sampled,
    Saved,
    Spiked,
    Started,
    Step,
    Warned,
    row_of,
)
from torchledger.trainer.interrupts import Interrupts
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.metrics import MetricsWriter, read_metrics
from torchledger.trainer.precision import autocast
from torchledger.trainer.questions import read_questions
from torchledger.trainer.resident import ResidentGauge, peak_resident_bytes
from torchledger.trainer.resume import resume
from torchledger.trainer.run_folder import RunFolder
from torchledger.trainer.sample import sample
from torchledger.trainer.saving import Saver
from torchledger.trainer.schedule import learning_rate
from torchledger.trainer.seeds import seed_step
from torchledger.trainer.selfcheck import check_loss
from torchledger.trainer.setup import Setup
from torchledger.trainer.step import StepResult, build_step, micro_batches
from torchledger.trainer.stream import training_batches, validation_batches
from torchledger.trainer.tally import Tally
from torchledger.trainer.torch_errors import raise_in_our_words
from torchledger.trainer.utilization import Yardstick
from torchledger.trainer.validation import evaluate

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["Session"]


class Session:
    """Everything that one process holds while it trains. Its methods do one thing each and return the event of it.

    Args:
        setup: the run.
        folder: its folder.
        checkpoint: where to go on from; nothing begins anew.
        allow_changes: go on even where the run will not be bit for bit the uninterrupted one.
        yardstick: what utilisation is measured by.

    Raises:
        CheckpointError: the checkpoint cannot be read, is of another model, or of a run that differs.
        OutOfMemory: the model does not fit.
        Nondeterministic: deterministic mode, and an operation that is not.
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
        yardstick: Yardstick,
    ) -> None:
        self.setup, self.folder = setup, folder
        self._begin = time.perf_counter()
        self._yardstick = yardstick
        try:
            weights = setup.config.initial_weights if checkpoint is None else None
            with setup.device:
                self.step = build_step(setup.spec, setup.local_recipe, strategy=setup.strategy, weights=weights)
            compile_model(self.step.model, setup.compiled)
            resumed = resume(self.step, setup, checkpoint, self._group(), allow_changes=allow_changes)
        except (RuntimeError, MemoryError) as error:
            raise_in_our_words(error, None)
        self.first_step, self.checkpoint, self.changes = resumed.first_step, resumed.checkpoint, resumed.changes
        #: What there is to say of the files that the run goes on from, in words.
        self.oddities = list(resumed.oddities)
        config = setup.config
        self._questions = read_questions(config.choices) if config.choices is not None else ()
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
        if self._writer is not None and self._writer.damage:
            self.oddities.append(self._writer.damage)
        self._wait_for_all()  # nobody reads what the first rank has not cut off yet
        rows = read_metrics(folder.metrics_path)
        self.tally = Tally(rows, setup.recipe.tokens_per_step, self.first_step)
        self.validation_loss = next((r["validation_loss"] for r in rows[::-1] if r["kind"] == "evaluation"), None)
        #: What earlier sessions have written down already, as (kind, updates done): none of it is done twice.
        self.told = {(row["kind"], row["step"]) for row in rows}
        self._spikes: list[Spiked] = []
        self._gauge = ResidentGauge()
        # Asked once: between two steps even a short question takes long, its code and data having left the caches.
        self._drawing_rank = setup.ranks.drawing_rank(setup.strategy)
        self._accumulation_steps = setup.local_recipe.accumulation_steps

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
            convention=self._yardstick.convention,
            num_devices=setup.ranks.size,
        )

    def look_over(self) -> str:
        """Note how large activations are before the first update, by depth; a warning if some are unusual, else empty.

        Weights that were trained before are what they are: nothing is said of them.
        """
        if self.first_step > 0 or self.setup.config.initial_weights is not None:
            return ""
        with contextlib.closing(iter(self.validation)) as batches:
            tokens, _, *documents = (part[:1] for part in next(batches))
        with autocast(self.setup.device, self.setup.recipe.precision):
            scales = activation_scales(self.step.model, tokens, *documents)
        self._write({"kind": "activation_scale", "step": 0, "rms": {each.name: each.rms for each in scales}})
        return unusual_scale(scales, self.step.model)

    def advance(self, step: int, interrupts: Interrupts) -> Step:
        """Do update `step`, unless loss or gradient norm is no number: then nothing is updated.

        On many ranks they tell each other meanwhile whether any has got a signal.

        Raises:
            OutOfMemory: on the device.
            Nondeterministic: deterministic mode, and an operation that is not.
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
            raise_in_our_words(error, step)
        seconds, waited = time.perf_counter() - begin, self.batches.data_wait_s - waited
        event = self._event(step, loss, norm, seconds, waited, skipped=result.skipped)
        self._write({"kind": "step", **row_of(event)})
        return event

    def spikes(self) -> list[Spiked]:
        """The spikes that began with the last step."""
        found, self._spikes = self._spikes, []
        for event in found:
            self._write({"kind": "spike", **asdict(event), "checkpoint": event.checkpoint and str(event.checkpoint)})
        return found

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

    def answer(self, done: int, interrupts: Interrupts) -> Answered | None:
        """Answer the multiple-choice questions after `done` updates; nothing if there are none or a signal came."""
        if not self._questions:
            return None
        begin, model, tokenizer = time.perf_counter(), self.step.model, self.setup.data.tokenizer()
        stop = lambda: interrupts.received is not None  # noqa: E731  # a question of one line
        found = answer(model, tokenizer, self._questions, self.setup.recipe, stop=stop, parallel=self.step.parallel)
        if found is None:
            return None
        shares = (found.plain, found.normalized, found.chance)
        event = Answered(done, found.num_questions, *shares, time.perf_counter() - begin)
        self._write({"kind": "choices", **asdict(event)})
        return event

    def save(self, done: int) -> list[Saved]:
        """Write a checkpoint after `done` updates, or begin to; what has come to disk by then.

        Raises:
            NonFinite: a weight is no number; the last good checkpoint is named.
            CheckpointError: a full disk, or a folder that cannot be written to.
            OutOfMemory: no memory for the copy that is written while training goes on.
        """
        self._require_finite(done)
        metrics = {"loss": self.tally.final_loss, "validation_loss": self.validation_loss}
        check = check_loss(self.step, self.setup.device)
        if self._writer is not None:
            self._writer.sync()  # a checkpoint outlives a power cut: so must the rows of what led to it
        manifest = Manifest(done, self.setup.identity, metrics, check_loss=check)
        try:
            self._saver.save(self.step.model, self.step.optimizer, manifest, self.step.state())
        except (RuntimeError, MemoryError) as error:
            raise_in_our_words(error, done)
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
        tally, yardstick = self.tally, self._yardstick
        step_s = tally.step_s if tally.session.num_steps or not self.changes else None
        return Finished(
            step=done,
            initial_loss=tally.initial_loss,
            final_loss=tally.final_loss,
            validation_loss=self.validation_loss,
            step_s=step_s,
            tokens_per_s=None if step_s is None else self.setup.recipe.tokens_per_step / step_s,
            mfu=None if step_s is None else yardstick.mfu(step_s),
            mfu_causal=None if step_s is None else yardstick.mfu_causal(step_s),
            hfu=None if step_s is None else yardstick.hfu(step_s),
            data_wait_share=tally.session.data_wait_share,
            wall_s=time.perf_counter() - self._begin,
            peak_resident_bytes=peak_resident_bytes(),
            session=tally.session,
            lifetime=tally.lifetime,
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

    def _require_finite(self, done: int) -> None:
        """Refuse to save weights that are no numbers. Where gradients are clipped, no step lets any come to be.

        Raises:
            NonFinite: with the last good checkpoint.
        """
        if self.setup.recipe.optimizer.gradient_clip > 0:
            return
        own = [getattr(p, "to_local", lambda p=p: p)() for p in self.step.model.parameters()]
        with torch.no_grad():
            is_wrong = not all(bool(each.isfinite().all()) for each in own)
        if any_rank(is_wrong, self.setup.device, self._group()):  # all ranks stop, or none
            raise NonFinite("weights", None, done - 1, self.last_good_checkpoint())

    def _update(self, step: int) -> StepResult:
        recipe = self.setup.recipe
        batch = next(self.batches)
        seed_step(recipe.seed, step, self._drawing_rank)
        return self.step(micro_batches(batch, self._accumulation_steps), step, _are_numbers)

    def _event(
        self, step: int, loss: float, norm: float | None, seconds: float, waited: float, *, skipped: bool
    ) -> Step:
        recipe, tally = self.setup.recipe, self.tally
        num_tokens = recipe.tokens_per_step
        spikes = tally.add(step, loss, norm, seconds=seconds, waited=waited, num_tokens=num_tokens, skipped=skipped)
        self._spikes = [Spiked(step, s.quantity, s.value, s.usual, s.score, self.checkpoint) for s in spikes]
        on_cuda, held = self.setup.device.type == "cuda", self._gauge.read()
        return Step(
            step=step,
            loss=loss,
            learning_rate=learning_rate(recipe.optimizer, step, recipe.num_steps),
            gradient_norm=norm,
            seconds=seconds,
            data_wait_s=waited,
            num_tokens=num_tokens,
            tokens_per_s=num_tokens / seconds,
            mfu=self._yardstick.mfu(seconds),
            hfu=self._yardstick.hfu(seconds),
            resident_bytes=held.now,
            peak_resident_bytes=held.peak,
            device_peak_bytes=torch.cuda.max_memory_allocated(self.setup.device) if on_cuda else None,
            epoch=self.batches.epochs(step + 1),
            document_pairs=self.batches.squared_lengths(step) if recipe.document_mask else None,
            warm_up=tally.is_warm_up(step),
            remaining_s=(recipe.num_steps - step - 1) * (tally.recent_step_s or seconds),
            skipped=skipped,
            session=tally.number,
        )


def _are_numbers(losses: Sequence[Tensor], norm: Tensor | None) -> bool:
    """Whether loss and gradient norm are finite; without clipping there is no norm, and saving looks at the weights."""
    quantities = [*losses] if norm is None else [*losses, norm]
    return all(math.isfinite(each.item()) for each in quantities)
