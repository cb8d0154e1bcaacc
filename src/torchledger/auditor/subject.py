"""`Subject`: what is audited, a model with a batch and how it is trained; and steps of it that leave no trace."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchledger.auditor.errors import AuditError
from torchledger.auditor.keeping import kept
from torchledger.tracer.undisturbed import undisturbed

Precision: TypeAlias = Literal["fp32", "bf16", "fp16"]
LossFunction: TypeAlias = Callable[[Any, Any], Tensor]

_OF_OPTIMIZERS = ("step", "zero_grad", "state", "param_groups")
_LOW: dict[str, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class Subject:
    """What is audited.

    Attributes:
        name: what it is called in answers.
        model: any module.
        batch: what it takes: a tensor, a tuple of arguments, or a mapping of keyword arguments.
        loss: of output and batch; nothing where the model returns a scalar, an output with `loss`, or a tuple with one
            scalar in it.
        optimizer: made on the model's parameters; its state is what training has left there.
        precision: what the forward pass is autocast to; `fp32` is no autocast.
        gradient_clip: the norm that gradients are cut to; 0 is not at all.
        loss_scale: what the loss is multiplied with before the backward pass, and gradients divided by after it.
        vocab_size: ids that the loss is over, where it is a language model's: its first loss is near the logarithm.
        initialization: how the weights were drawn, by the recipe's word (`fan_in`, `gpt2`, `xavier`, `kaiming`,
            `mup`), where that is known and the weights are still those.
        initial_stds: standard deviation that each parameter was drawn with by that word, before its cut at ±3 of it;
            0 for those that begin constant.
        batches: batch n of the data, a pure function of n, where there is more than one batch.
        rebuild: the same subject made anew from nothing but a seed, weights, data order and all; nothing where it
            cannot be.
    """

    name: str
    model: nn.Module
    batch: Any
    loss: LossFunction | None = None
    optimizer: Optimizer | None = None
    precision: Precision = "fp32"
    gradient_clip: float = 0.0
    loss_scale: float = 1.0
    vocab_size: int | None = None
    initialization: str | None = None
    initial_stds: Mapping[str, float] | None = None
    batches: Callable[[int], Any] | None = None
    rebuild: Callable[[int], Subject] | None = None

    def __post_init__(self) -> None:
        """What could only fail later, in the middle of a step, or change nothing without a word.

        Raises:
            AuditError: a precision, loss or optimizer that is none.
        """
        if self.precision not in get_args(Precision):
            raise AuditError(f"{self.name}: precision is {self.precision!r}; take {', '.join(get_args(Precision))}")
        if self.loss is not None and not callable(self.loss):
            raise AuditError(
                f"{self.name}: the loss is {self.loss!r}, no function. Pass a function of output and batch"
            )
        if self.optimizer is not None and not all(hasattr(self.optimizer, name) for name in _OF_OPTIMIZERS):
            raise AuditError(f"{self.name}: the optimizer is {self.optimizer!r}. Pass one made on model.parameters()")

    def forward(self, precision: Precision | None = None) -> Tensor:
        """The loss of the batch, a scalar with a graph behind it.

        Args:
            precision: another than the subject's own.

        Raises:
            AuditError: the model gives nothing that can be a loss.
        """
        with self.autocast(precision):
            output = called(self.model, self.batch)
            return self._checked(output if self.loss is None else self.loss(output, self.batch))

    def autocast(self, precision: Precision | None = None) -> contextlib.AbstractContextManager[Any]:
        """What the forward pass runs under."""
        low = _LOW.get(precision or self.precision)
        return torch.autocast(self.device.type, low) if low is not None else contextlib.nullcontext()

    @property
    def device(self) -> torch.device:
        """Where the model stands; the CPU for one without parameters and buffers."""
        first = next(itertools.chain(self.model.parameters(), self.model.buffers()), None)
        return torch.device("cpu") if first is None else first.device

    def _checked(self, found: Any) -> Tensor:
        if isinstance(found, (tuple, list)) and not hasattr(found, "loss"):
            single = [
                each for each in found if isinstance(each, Tensor) and not each.dim() and each.is_floating_point()
            ]
            found = single[0] if len(single) == 1 else None  # (logits, loss), as many small trainers have it
        if not isinstance(found, Tensor):
            found = found.get("loss") if isinstance(found, Mapping) else getattr(found, "loss", None)
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise AuditError(
                f"{self.name} gives no loss: pass loss=, a function of output and batch that returns one number"
            )
        return found


def called(model: nn.Module, batch: Any) -> Any:
    """The model's output for a batch."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


@contextlib.contextmanager
def left_as_it_was(subject: Subject) -> Iterator[None]:
    """Whatever happens inside, the subject is afterwards what it was, bit for bit.

    Weights, buffers, gradients, modes, hooks, caches and counters of the modules, the optimizer's state and groups, the
    batch (`kept` says exactly what), every random stream and global setting of torch. Holds a copy of all of these
    meanwhile. Inside, gradients are taken even where the caller switched them off, and what is compiled runs eagerly:
    its operations are those that were written.

    Raises:
        AuditError: a lazy module has no weights yet.
    """
    with contextlib.ExitStack() as inside:
        inside.enter_context(undisturbed())
        inside.enter_context(torch.inference_mode(False))  # which switches gradients on as well
        if "torch._dynamo" in sys.modules:
            inside.enter_context(torch.compiler.set_stance("force_eager"))
        put_back = kept(subject.model, subject.optimizer, subject.loss, subject.batch)
        try:
            yield
        finally:
            for each in put_back:
                each()
