"""The plain training step of `trace`: forward, loss, backward, clip, optimizer, zero."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import nn
from torch.optim import Optimizer

from torchledger.machine import Chip
from torchledger.tracer.errors import TraceError
from torchledger.tracer.targets import Target
from torchledger.tracer.targets import target as target_of
from torchledger.tracer.targets.target import TargetName

LossFunction: TypeAlias = Callable[[Any, Any], torch.Tensor]
OptimizerFactory: TypeAlias = Callable[[Iterable[nn.Parameter]], Optimizer]
Precision: TypeAlias = Literal["fp32", "bf16", "fp16"]

_AN_OPTIMIZER = "Pass one made on model.parameters(), or a function of parameters that makes one (torch.optim.AdamW)"
_LOW: dict[str, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How a plain step is run; `trace` says what each option means."""

    loss: LossFunction | None = None
    optimizer: Optimizer | OptimizerFactory | None = None
    precision: Precision = "fp32"
    gradient_clip: float = 0.0
    accumulation_steps: int = 1
    set_to_none: bool = True
    steps: int = 2
    target: TargetName | Target = "cpu"
    chip: Chip | str | None = None
    fold: bool = True
    expert_tokens: Sequence[int] | None = None

    def check(self) -> None:
        """Refuse what cannot be run.

        Raises:
            TraceError: says which option and why.
        """
        if not _is_count(self.steps):
            raise TraceError(f"there is nothing to look at in {self.steps} steps", remedy="Run 1, 2 ...")
        if not _is_count(self.accumulation_steps):
            raise TraceError(f"{self.accumulation_steps} micro-batches make no step", remedy="Take 1, 2 ...")
        if not _is_norm(self.gradient_clip):
            raise TraceError(f"gradient_clip is {self.gradient_clip!r}, no norm", remedy="Take 0 (no clipping) or more")
        self._check_functions()
        if self.precision not in {"fp32", *_LOW}:
            raise TraceError(f"precision is {self.precision!r}", remedy="It is fp32, bf16 or fp16")
        name = self.target_name
        if name not in {"cpu", "cuda"}:
            raise TraceError(f"target is {self.target!r}", remedy="It is cpu or cuda")
        if self.precision == "fp16" and name == "cpu":
            raise TraceError(
                "fp16 is no precision to train in on a CPU: torch scales its gradients on accelerators only",
                remedy="Take bf16, or target='cuda'",
            )

    def _check_functions(self) -> None:
        if self.loss is not None and not callable(self.loss):
            raise TraceError(f"the loss is {self.loss!r}, no function", remedy="Pass a function of output and batch")
        if self.optimizer is not None and not isinstance(self.optimizer, Optimizer) and not callable(self.optimizer):
            raise TraceError(f"the optimizer is {self.optimizer!r}", remedy=_AN_OPTIMIZER)

    @property
    def target_name(self) -> str:
        """`cpu` or `cuda`."""
        return self.target.name if isinstance(self.target, Target) else self.target

    def found_target(self) -> Target:
        """The target that name and chip stand for."""
        return target_of(self.target, self.chip)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 1


def _is_norm(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < math.inf


class PlainStep:
    """One optimizer step of a model on a batch.

    Args:
        model: copied, fake.
        batch: what it takes; one micro-batch.
        loss: of output and batch, or nothing where the model returns it.
        options: how it is run.
    """

    def __init__(self, model: nn.Module, batch: Any, loss: LossFunction | None, options: StepOptions) -> None:
        self.model = model
        self.batch = batch
        self.optimizer: Optimizer | None = None
        self._loss = loss
        self._options = options
        self._scaler: torch.amp.GradScaler | None = None

    def prepare(self, optimizer: Optimizer | None) -> None:
        """Take the optimizer, and make what the precision needs.

        Raises:
            TraceError: it is something else.
        """
        if optimizer is not None and not (hasattr(optimizer, "step") and hasattr(optimizer, "zero_grad")):
            raise TraceError(f"what makes the optimizer returns {type(optimizer).__name__}", remedy=_AN_OPTIMIZER)
        self.optimizer = optimizer
        if self._options.precision == "fp16":
            self._scaler = torch.amp.GradScaler("cpu")  # the fakes stand on the CPU, whatever the target

    def __call__(self) -> None:
        """Run it."""
        for _ in range(self._options.accumulation_steps):
            self._accumulate()
        if self._scaler is not None and self.optimizer is not None and self._options.gradient_clip > 0:
            self._scaler.unscale_(self.optimizer)
        if self._options.gradient_clip > 0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._options.gradient_clip)
        if self.optimizer is not None and self._scaler is not None:
            self._scaler.step(self.optimizer)
            self._scaler.update()
        elif self.optimizer is not None:
            self.optimizer.step()
        zero = self.model.zero_grad if self.optimizer is None else self.optimizer.zero_grad
        zero(set_to_none=self._options.set_to_none)
        if self._options.set_to_none:
            self.model.zero_grad(set_to_none=True)  # those that the optimizer does not hold

    def _accumulate(self) -> None:
        options = self._options
        low = _LOW.get(options.precision)
        with torch.autocast(options.target_name, low or torch.bfloat16, enabled=low is not None):
            output = _called(self.model, self.batch)
            loss = self._checked(self._loss_of(output))
        if options.accumulation_steps > 1:
            loss = loss / options.accumulation_steps
        if self._scaler is not None:
            loss = self._scaler.scale(loss)
        loss.backward()  # type: ignore[no-untyped-call]

    def _loss_of(self, output: Any) -> Any:
        if self._loss is not None:
            return self._loss(output, self.batch)
        if isinstance(output, torch.Tensor) and output.numel() == 1:
            return output
        found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        if isinstance(found, torch.Tensor):
            return found
        what = f"a tensor of shape {tuple(output.shape)}" if isinstance(output, torch.Tensor) else type(output).__name__
        raise TraceError(
            f"the model returns {what}, which is no loss",
            remedy="Pass loss=, a function of output and batch (a builder's dict has it as `loss`)",
        )

    @staticmethod
    def _checked(loss: Any) -> torch.Tensor:
        if not isinstance(loss, torch.Tensor):
            raise TraceError(
                f"the loss is {type(loss).__name__}, not a tensor", remedy="Return a tensor of one element"
            )
        if loss.numel() != 1:
            raise TraceError(
                f"the loss has the shape {tuple(loss.shape)}, it is no scalar", remedy="Reduce it (.mean() or .sum())"
            )
        if loss.is_complex():
            raise TraceError("the loss is complex, and nothing is least among complex numbers", remedy="Take .abs()")
        if not loss.requires_grad:
            raise TraceError(
                "the loss depends on nothing that requires a gradient",
                remedy="Give the model a parameter with requires_grad=True, and make the loss without .detach()",
            )
        return loss


def tensors_of(batch: Any) -> list[torch.Tensor]:
    """All tensors of a batch: in mappings, tuples, lists, and the fields of dataclass-like objects."""
    if isinstance(batch, torch.Tensor):
        return [batch]
    if isinstance(batch, Mapping):
        return [tensor for item in batch.values() for tensor in tensors_of(item)]
    return [tensor for item in batch for tensor in tensors_of(item)] if isinstance(batch, (tuple, list)) else []


def _called(model: nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


@contextlib.contextmanager
def finite_gradients(target: Target, assume: Callable[[str], None]) -> Iterator[None]:
    """While this is on, a gradient scaler finds every gradient finite, which only data could tell.

    Args:
        target: where it is `cuda`, scalers made for CUDA are on although no GPU is there.
        assume: told what is assumed, when a scaler steps.
    """
    scaler, common = torch.amp.GradScaler, torch.cuda.amp.common
    original, absent = scaler._maybe_opt_step, common.amp_definitely_not_available  # noqa: SLF001  # the one method that looks at values

    def step(_scaler: Any, optimizer: Optimizer, _state: Any, *args: Any, **kwargs: Any) -> Any:
        assume("every gradient is finite: the gradient scaler skips no step")
        return optimizer.step(*args, **kwargs)

    scaler._maybe_opt_step = step  # type: ignore[assignment, method-assign]  # noqa: SLF001  # as above
    if target.name == "cuda":
        common.amp_definitely_not_available = lambda: False
    try:
        yield
    finally:
        scaler._maybe_opt_step = original  # type: ignore[method-assign]  # noqa: SLF001  # as above
        common.amp_definitely_not_available = absent
