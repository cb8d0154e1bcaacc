"""`Subject`: what is audited, a model with a batch and how it is trained; and steps of it that leave no trace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchledger.auditor.errors import AuditError
from torchledger.tracer.undisturbed import undisturbed

Precision: TypeAlias = Literal["fp32", "bf16", "fp16"]
LossFunction: TypeAlias = Callable[[Any, Any], Tensor]

_LOW: dict[str, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class Subject:
    """What is audited.

    Attributes:
        name: what it is called in answers.
        model: any module.
        batch: what it takes: a tensor, a tuple of arguments, or a mapping of keyword arguments.
        loss: of output and batch; nothing where the model returns a scalar or an output with `loss`.
        optimizer: made on the model's parameters; its state is what training has left there.
        precision: what the forward pass is autocast to; `fp32` is no autocast.
        gradient_clip: the norm that gradients are cut to; 0 is not at all.
        vocab_size: ids that the loss is over, where it is a language model's: its first loss is near the logarithm.
        initialization: how the weights were drawn, by the recipe's word (`fan_in`, `gpt2`, `xavier`, `kaiming`,
            `mup`), where that is known and the weights are still those.
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
    vocab_size: int | None = None
    initialization: str | None = None
    batches: Callable[[int], Any] | None = None
    rebuild: Callable[[int], Subject] | None = None

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
        device = next(self.model.parameters()).device.type
        return torch.autocast(device, low) if low is not None else contextlib.nullcontext()

    def _checked(self, found: Any) -> Tensor:
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

    Weights and buffers (in place: tied stays tied), gradients, training mode, `requires_grad`, hooks, the optimizer's
    state and groups, every random stream and global setting of torch. Holds a copy of all of these meanwhile.
    """
    model, optimizer = subject.model, subject.optimizer
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}.values()
    values = [(tensor, tensor.detach().clone()) for tensor in tensors]
    gradients = [(p, p.grad, None if p.grad is None else p.grad.clone()) for p in model.parameters()]
    wanted = [(p, p.requires_grad) for p in model.parameters()]
    modes = [(module, module.training) for module in model.modules()]
    hooks = [(module, _hooks(module)) for module in model.modules()]
    state = None if optimizer is None else _State.of(optimizer)
    with undisturbed():
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, value in values:
                    tensor.copy_(value)
                for parameter, gradient, value in gradients:
                    parameter.grad = gradient if gradient is None or value is None else gradient.copy_(value)
            for parameter, wants in wanted:
                parameter.requires_grad_(wants)
            for module, training in modes:
                module.training = training
            for module, own in hooks:
                for name, registered in own.items():
                    getattr(module, name).clear()
                    getattr(module, name).update(registered)
            if state is not None:
                state.put_back()


@dataclass(frozen=True, slots=True)
class _State:
    """An optimizer's state and groups as they were. `load_state_dict` would cast, and make new tensors."""

    optimizer: Optimizer
    entries: tuple[tuple[Any, Any], ...]
    groups: tuple[dict[str, Any], ...]
    values: tuple[tuple[Tensor, Tensor], ...]

    @classmethod
    def of(cls, optimizer: Optimizer) -> _State:
        entries = tuple(
            (key, dict(value) if isinstance(value, dict) else value) for key, value in optimizer.state.items()
        )
        tensors = [
            t for _, state in entries if isinstance(state, dict) for t in state.values() if isinstance(t, Tensor)
        ]
        groups = tuple(
            {key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups
        )
        return cls(optimizer, entries, groups, tuple((tensor, tensor.clone()) for tensor in tensors))

    def put_back(self) -> None:
        self.optimizer.state.clear()
        self.optimizer.state.update(self.entries)
        for group, values in zip(self.optimizer.param_groups, self.groups, strict=True):
            for key in [key for key in group if key != "params" and key not in values]:
                del group[key]
            group.update(values)
        with torch.no_grad():
            for tensor, value in self.values:
                tensor.copy_(value)


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _hooks(module: nn.Module) -> dict[str, dict[Any, Any]]:
    return {name: dict(getattr(module, name)) for name in _HOOKS}
