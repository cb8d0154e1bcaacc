"""`trace` and `trace_step`: a training step run on no memory, twice, and what was seen of it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import Optimizer

from torchledger.machine import Chip
from torchledger.tracer.caches import without_fakes
from torchledger.tracer.copying import Copies
from torchledger.tracer.distributed import of_this_rank, ranks
from torchledger.tracer.documents import document_exact
from torchledger.tracer.errors import TraceError
from torchledger.tracer.explained import explained
from torchledger.tracer.fake import Fakes, as_if_real
from torchledger.tracer.folding import Folds, folded
from torchledger.tracer.function_of_nothing import require_function_of_nothing
from torchledger.tracer.plain_step import (
    LossFunction,
    OptimizerFactory,
    PlainStep,
    Precision,
    StepOptions,
    finite_gradients,
    tensors_of,
)
from torchledger.tracer.reached import Reached, reach
from torchledger.tracer.recorder import Recorder
from torchledger.tracer.result import Trace
from torchledger.tracer.targets import Target
from torchledger.tracer.targets import target as target_of
from torchledger.tracer.targets.target import TargetName
from torchledger.tracer.undisturbed import undisturbed

#: What folds the layers, and why a trace before this one could not be folded.
_Folds: TypeAlias = tuple[Folds | None, tuple[str, ...]]
_Tracing: TypeAlias = Callable[[_Folds], contextlib.AbstractContextManager[tuple[FakeTensorMode, Recorder]]]


def trace(
    model: nn.Module,
    batch: Any,
    *,
    loss: LossFunction | None = None,
    optimizer: Optimizer | OptimizerFactory | None = None,
    precision: Precision = "fp32",
    gradient_clip: float = 0.0,
    accumulation_steps: int = 1,
    set_to_none: bool = True,
    steps: int = 2,
    target: TargetName | Target = "cpu",
    chip: Chip | str | None = None,
    document_lengths: Sequence[int] = (),
    expert_tokens: Sequence[int] | None = None,
    fold: bool = True,
) -> Trace:
    """Run training steps of a model on no memory and write down every operation and allocation.

    The model, its hooks, buffers, gradients and mode, the optimizer and every random stream stay as they are: what runs
    is a copy on fake tensors. The step is forward, loss, backward, clip, `optimizer.step()`, `zero_grad()`; the model's
    output has a name in it, and lives until the backward pass is over.

    Args:
        model: any module, in the mode (train, eval) that it is in; it may stand on a GPU or on meta.
        batch: what the model takes: a tensor, a tuple or list (positional) or a mapping (by name).
        loss: of the model's output and the batch, a scalar. Nothing: the output itself if it is a scalar, else its
            `loss` (as Hugging Face models return).
        optimizer: one made on this model's parameters, or a function of parameters that makes one. Nothing: forward and
            backward only.
        precision: `bf16` and `fp16` run forward and loss under `torch.autocast`, `fp16` with a gradient scaler too;
            that is for accelerators and refused for the CPU.
        gradient_clip: largest global gradient norm, 0 does not clip.
        accumulation_steps: how many micro-batches a step has; `batch` is one of them.
        set_to_none: whether gradients are freed or filled with zeros after the step.
        steps: how many steps; the ledger is of the last. The first one makes the optimizer's state.
        target: the device that the step is looked at for.
        chip: which accelerator, by name.
        document_lengths: lengths of the documents packed in a sequence, in tokens: exact attention is that within
            documents.
        expert_tokens: tokens that each expert of a layer gets, in models that loop over experts by what a router
            decided; nothing shares them out evenly. The assumptions say which.
        fold: whether equal layers that follow one another are run a few times and counted as often as they are there;
            where they turn out not to run alike they are all run, and the assumptions say so.

    Returns:
        Ledger of the last step, timeline of all.

    Raises:
        TraceError: the step needs data (`.item()`, a data-dependent shape), has no loss, or cannot be copied; or an
            option is impossible.
    """
    options = StepOptions(
        loss, optimizer, precision, gradient_clip, accumulation_steps, set_to_none, steps, target, chip, fold,
        expert_tokens,
    )  # fmt: skip
    return document_exact(trace_plain(model, batch, options), document_lengths)


def trace_plain(
    model: nn.Module,
    batch: Any,
    options: StepOptions,
    *,
    change: Callable[[nn.Module], None] = lambda _: None,
    around: Callable[[Recorder], contextlib.AbstractContextManager[None]] = lambda _: contextlib.nullcontext(),
) -> Trace:
    """`trace` with the options in one object.

    Args:
        model: as `trace` has it.
        batch: as `trace` has it.
        options: the rest of `trace`'s arguments.
        change: done to the copied model before it runs.
        around: entered while steps run.
    """
    options.check()
    _require_module(model)
    seen = folded(lambda *folds: _plain(model, batch, options, folds, change, around), fold=options.fold)
    return of_this_rank(seen)


def _plain(  # noqa: PLR0917  # what one trace is made of
    model: nn.Module,
    batch: Any,
    options: StepOptions,
    folds: _Folds,
    change: Callable[[nn.Module], None],
    around: Callable[[Recorder], contextlib.AbstractContextManager[None]],
) -> Trace:
    with _tracing(options.found_target(), folds, options.expert_tokens) as (mode, recorder):
        reached = Reached(Fakes(mode))
        step = _copied(reached.copies, model, batch, options)
        fixed = reached.copies.of(options.optimizer) if isinstance(options.optimizer, Optimizer) else None
        change(step.model)
        with reached.swapped(), mode, recorder, explained(recorder), around(recorder), _outside_autocast():
            recorder.register(step.model)
            recorder.register_inputs(tensors_of(step.batch))
            with recorder.phase("build"):
                make = options.optimizer
                step.prepare(fixed or (make(step.model.parameters()) if callable(make) else None))
            _run(recorder, step, options.steps)
    return recorder.trace(since=f"step {options.steps}")


def trace_step(
    step: Callable[[], object],
    *,
    steps: int = 2,
    target: TargetName | Target = "cpu",
    chip: Chip | str | None = None,
    expert_tokens: Sequence[int] | None = None,
    fold: bool = True,
    world_size: int | None = None,
    rank: int = 0,
) -> Trace:
    """Run the user's own training step on no memory.

    Args:
        step: one of two functions of nothing. Either a step itself, over models, optimizers and tensors that it
            reaches (closure, globals, its object): they are real or on meta, copies stand in for them while it runs,
            and they are left as they were. Or a builder that makes model, optimizer and data, all fake, and returns
            the step.
        steps: how many times the step is run; the ledger is of the last. The first one makes the optimizer's state.
        target: the device that the step is looked at for.
        chip: which accelerator, by name.
        expert_tokens: as `trace` has it.
        fold: whether equal layers are run a few times only, as `trace` has it. A step that turns out not to be
            foldable is run anew.
        world_size: ranks of a distributed run, of which this step is one's; `ranks` says what is set up.
        rank: which one.

    Returns:
        Ledger of the last step; the timeline from the first tensor on.

    Raises:
        TraceError: the step needs data (`.item()`, a data-dependent shape), draws from a generator, or fewer than one
            is asked for.
    """
    StepOptions(steps=steps, target=target, chip=chip).check()
    require_function_of_nothing(step)
    found = partial(_tracing, target_of(target, chip), expert_tokens=expert_tokens)
    with contextlib.nullcontext() if world_size is None else ranks(world_size, rank):
        for is_builder in _guesses(step):
            seen = folded(
                lambda *folds, guess=is_builder: _traced(step, found, steps, folds, is_builder=guess), fold=fold
            )
            if seen is not None:
                return of_this_rank(seen)
    raise TraceError("the step returns a step each time it is called", remedy="Pass the step that does the work")


def _guesses(step: Callable[[], object]) -> tuple[bool, bool]:
    """Whether to run it as a builder first: what reaches a model is a step, most likely."""
    _, reached = reach(step, Fakes(FakeTensorMode(allow_non_fake_inputs=True)))
    is_step = bool(reached.copies.modules) or any(tensor.requires_grad for tensor in reached.copies.tensors)
    return not is_step, is_step


def _traced(
    step: Callable[[], object], tracing: _Tracing, steps: int, folds: _Folds, *, is_builder: bool
) -> Trace | None:
    """The trace of a step or a builder; `None` where it turns out to be the other."""
    with tracing(folds) as (mode, recorder):
        run, reached = reach(step, Fakes(mode))
        with reached.swapped(), mode, recorder, explained(recorder):
            roots = reached.roots()
            for name, root in roots.items():
                recorder.register(root, name if len(roots) > 1 else "")
            recorder.register_inputs(reached.copies.tensors)
            if is_builder:
                with recorder.phase("build"):
                    built = run()
                if not _is_step(built):
                    return None
                run = cast("Callable[[], object]", built)
            recorder.mark("step 1")
            if _is_step(run()):
                return None
            _run(recorder, run, steps, already=1)
    return recorder.trace(since=f"step {steps}")


def _is_step(returned: object) -> bool:
    return callable(returned) and not isinstance(returned, (torch.Tensor, nn.Module))


def _run(recorder: Recorder, step: Callable[[], object], steps: int, already: int = 0) -> None:
    for number in range(1 + already, steps + 1):
        recorder.mark(f"step {number}")
        step()


def _require_module(model: object) -> None:
    if isinstance(model, nn.Module):
        return
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise TraceError(f"{model.__name__} is the class of a model", remedy=f"Make one: {model.__name__}(...)")
    raise TraceError(
        f"{getattr(model, '__name__', type(model).__name__)} is no torch.nn.Module",
        remedy="Pass the model, or trace_step a function that runs the step",
    )


def _copied(copies: Copies, model: nn.Module, batch: Any, options: StepOptions) -> PlainStep:
    if isinstance(options.optimizer, Optimizer):
        theirs = {id(p) for group in options.optimizer.param_groups for p in group["params"]}
        if theirs.isdisjoint(id(p) for p in model.parameters()):
            raise TraceError(
                "the optimizer holds none of the model's parameters",
                remedy="Make it on model.parameters(), or pass a function that does (torch.optim.AdamW)",
            )
    try:
        copied, fake_batch = copies.of(model), copies.of(batch)
        return PlainStep(copied, fake_batch, copies.of(options.loss), options)
    except (TypeError, RuntimeError) as error:
        raise TraceError(
            f"the model cannot be copied: {error}", remedy="Use trace_step with a function that builds it anew"
        ) from error


@contextlib.contextmanager
def _tracing(
    target: Target, folds: _Folds, expert_tokens: Sequence[int] | None = None
) -> Iterator[tuple[FakeTensorMode, Recorder]]:
    """A fake mode and a recorder, every global of torch that is touched put back."""
    with (
        undisturbed(),
        without_fakes(),
        as_if_real(),
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        _on_cpu(target),
    ):
        torch.autograd.set_detect_anomaly(False)  # it looks for NaN, and there is no data
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        recorder = Recorder(fake_mode=mode, target=target, folds=folds[0], routing=expert_tokens)
        recorder.assumptions.extend(folds[1])
        with finite_gradients(target, recorder.assumptions.append), _quiet():
            yield mode, recorder


@contextlib.contextmanager
def _on_cpu(target: Target) -> Iterator[None]:
    """Fakes stand on the CPU, whatever the user's default device is; `cuda` means something to a target of CUDA."""
    default = torch.get_default_device()
    if default.type in {"cpu", target.name}:
        yield
        return
    with torch.device("cpu"):
        yield


@contextlib.contextmanager
def _outside_autocast() -> Iterator[None]:
    """As outside every autocast: `precision` says what is on, and its casts are freed when the loss is there."""
    depth = torch.autocast_increment_nesting() - 1
    for _ in range(depth + 1):
        torch.autocast_decrement_nesting()
    for device in ("cpu", "cuda"):
        torch.set_autocast_enabled(device, False)
    try:
        yield
    finally:
        for _ in range(depth):
            torch.autocast_increment_nesting()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Take torch's log away: it gets a traceback for every operation that refuses its operands."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
