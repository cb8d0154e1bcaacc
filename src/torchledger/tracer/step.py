"""`trace` and `trace_step`: a training step run on no memory, twice, and what was seen of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.optim import Optimizer

from torchledger.machine import Chip
from torchledger.tracer.errors import TraceError
from torchledger.tracer.fake import Fakes, as_if_real, tensor_types, undisturbed
from torchledger.tracer.recorder import Recorder
from torchledger.tracer.result import Trace
from torchledger.tracer.source import source_of
from torchledger.tracer.targets import Target
from torchledger.tracer.targets import target as target_of
from torchledger.tracer.targets.target import TargetName

_FIXED_DEVICE = "Make tensors where the module's parameters are (`x.device`) instead of on a fixed device"

LossFunction: TypeAlias = Callable[[Any, Any], torch.Tensor]
OptimizerFactory: TypeAlias = Callable[[Iterable[nn.Parameter]], Optimizer]

_NEEDS_VALUES = (
    "Take the decision from shapes instead of values, pass the value in as a Python number, or trace a step that "
    "leaves this out"
)


def trace(
    model: nn.Module,
    batch: Any,
    *,
    loss: LossFunction | None = None,
    optimizer: Optimizer | OptimizerFactory | None = None,
    precision: Literal["fp32", "bf16"] = "fp32",
    gradient_clip: float = 0.0,
    steps: int = 2,
    target: TargetName = "cpu",
    chip: Chip | str | None = None,
) -> Trace:
    """Run training steps of a model on no memory and write down every operation and allocation.

    The model, its hooks, buffers, gradients and mode, the optimizer and every random stream stay as they are: what runs
    is a copy on fake tensors. The step is forward, loss, backward, clip, `optimizer.step()`, `zero_grad()`.

    Args:
        model: any module; it may stand on a GPU or on meta, the step is traced as the CPU would run it.
        batch: what the model takes: a tensor, a tuple or list (positional) or a mapping (by name).
        loss: of the model's output and the batch, a scalar. Nothing: the output itself if it is a scalar, else its
            `loss` (as Hugging Face models return).
        optimizer: one made on this model's parameters, or a function of parameters that makes one. Nothing: forward and
            backward only.
        precision: `bf16` runs forward and loss under `torch.autocast`.
        gradient_clip: largest global gradient norm, 0 does not clip.
        steps: how many steps; the ledger is of the last. The first one makes the optimizer's state.
        target: the device that the step is looked at for.
        chip: which accelerator, by name.

    Returns:
        Ledger of the last step, timeline of all.

    Raises:
        TraceError: the step needs data (`.item()`, a data-dependent shape), has no loss, or cannot be copied; or fewer
            than one step is asked for.
    """
    _check(steps)
    with _tracing(target_of(target, chip)) as (mode, recorder):
        step = _copied(Fakes(mode), model, batch, loss, optimizer)
        step.precision, step.gradient_clip = precision, gradient_clip
        with mode, recorder, _explained(recorder):
            recorder.register(step.model)
            recorder.register_inputs(_tensors(step.batch))
            for number in range(1, steps + 1):
                recorder.mark(f"step {number}")
                step()
    return recorder.trace(since=f"step {steps}")


def trace_step(
    build: Callable[[], Callable[[], object]],
    *,
    steps: int = 2,
    target: TargetName = "cpu",
    chip: Chip | str | None = None,
) -> Trace:
    """Build and run the user's own training step on no memory.

    Args:
        build: makes model, optimizer and data, and returns the step, a function of nothing. Tensors made in it are
            fake.
        steps: how many times the step is run; the ledger is of the last. The first one makes the optimizer's state.
        target: the device that the step is looked at for.
        chip: which accelerator, by name.

    Returns:
        Ledger of the last step, timeline from the first tensor that `build` makes.

    Raises:
        TraceError: the step needs data (`.item()`, a data-dependent shape), or fewer than one is asked for.
    """
    _check(steps)
    with _tracing(target_of(target, chip)) as (mode, recorder), mode, recorder, _explained(recorder):
        with recorder.phase("build"):
            step = build()
        for number in range(1, steps + 1):
            recorder.mark(f"step {number}")
            step()
    return recorder.trace(since=f"step {steps}")


def _check(steps: int) -> None:
    if steps < 1:
        raise TraceError(f"there is nothing to look at in {steps} steps", remedy="Run at least 1")


def _copied(
    fakes: Fakes,
    model: nn.Module,
    batch: Any,
    loss: LossFunction | None,
    optimizer: Optimizer | OptimizerFactory | None,
) -> _Step:
    try:
        fake_model, fake_batch = fakes.of(model, tensor_types(model)), fakes.of(batch)
        fake_loss = fakes.of(loss) if isinstance(loss, nn.Module) else loss
        fake_optimizer = _optimizer(fakes, optimizer, fake_model)
    except (TypeError, RuntimeError) as error:
        raise TraceError(
            f"the model cannot be copied: {error}", remedy="Use trace_step, which builds it anew"
        ) from error
    return _Step(fake_model, fake_batch, loss=fake_loss, optimizer=fake_optimizer)


class _Step:
    """The plain training step of `trace`."""

    def __init__(
        self,
        model: nn.Module,
        batch: Any,
        *,
        loss: LossFunction | None,
        optimizer: Optimizer | None,
    ) -> None:
        self.model = model
        self.batch = batch
        self.loss = loss
        self.optimizer = optimizer
        self.precision = "fp32"
        self.gradient_clip = 0.0

    def __call__(self) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16"):
            output = _called(self.model, self.batch)
            loss = self._loss(output)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.gradient_clip > 0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.gradient_clip)
        if self.optimizer is not None:
            self.optimizer.step()
        self.model.zero_grad(set_to_none=True)

    def _loss(self, output: Any) -> torch.Tensor:
        if self.loss is not None:
            return self.loss(output, self.batch)
        if isinstance(output, torch.Tensor) and output.numel() == 1:
            return output
        found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if isinstance(found, torch.Tensor):
            return found
        raise TraceError(
            f"the model returns {type(output).__name__}, which is no loss",
            remedy="Pass loss=, a function of output and batch",
        )


def _called(model: nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


def _optimizer(fakes: Fakes, optimizer: Optimizer | OptimizerFactory | None, model: nn.Module) -> Optimizer | None:
    if optimizer is None:
        return None
    if isinstance(optimizer, Optimizer):
        return fakes.of(optimizer)
    return optimizer(model.parameters())


def _tensors(batch: Any) -> list[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        return [batch]
    if isinstance(batch, Mapping):
        return [tensor for item in batch.values() for tensor in _tensors(item)]
    return [tensor for item in batch for tensor in _tensors(item)] if isinstance(batch, (tuple, list)) else []


@contextlib.contextmanager
def _tracing(target: Target) -> Iterator[tuple[FakeTensorMode, Recorder]]:
    """A fake mode and a recorder, every global of torch that is touched put back."""
    with undisturbed(), as_if_real(), torch.inference_mode(mode=False), torch.enable_grad():
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        yield mode, Recorder(fake_mode=mode, target=target)


@contextlib.contextmanager
def _explained(recorder: Recorder) -> Iterator[None]:
    """What fake tensors cannot do as a `TraceError`; the user's own exceptions with the module named."""
    try:
        yield
    except TraceError:
        raise
    except Exception as error:
        module, source = recorder.modules.failed_in(error), source_of(error.__traceback__)
        known = _known(error)
        if known is not None:
            problem, remedy = known
            raise TraceError(problem, module=module, source=source, remedy=remedy) from error
        where = f"in module `{module}`" if module else "outside every module"
        error.add_note(f"while tracing a step, {where}, at {source}")
        raise


def _known(error: Exception) -> tuple[str, str] | None:
    """Problem and remedy of what fake tensors cannot do, `None` where the error is the user's own."""
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        return f"a traced step has no data, but {error.func} needs the values of a tensor", _NEEDS_VALUES
    if isinstance(error, UnsupportedOperatorException):
        return (
            f"{error.func} tells no shapes without data",
            "Register a fake kernel for it (torch.library.register_fake)",
        )
    text = str(error)
    if ".numpy() is not supported" in text or "data pointer" in text:
        return "a traced step has no data, but this needs the values of a tensor", _NEEDS_VALUES
    if "not linked with support for" in text or "not compiled with" in text or "NVIDIA driver" in text:
        return f"this needs a device that is not there ({text})", _FIXED_DEVICE
    return None
