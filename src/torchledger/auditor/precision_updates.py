"""Which weights a step cannot move: their update is at most half a unit in the last place of what is stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch

from torchledger.auditor.precision_step import Step
from torchledger.auditor.subject import Subject
from torchledger.formats import encode

__all__ = ["Moved", "lost_epsilons", "moved"]

_LOW: dict[str, torch.dtype] = {"BF16": torch.bfloat16, "FP16": torch.float16}
_FORMATS: dict[torch.dtype, str] = {dtype: name for name, dtype in _LOW.items()}


@dataclass(frozen=True, slots=True)
class Moved:
    """What an update does to one parameter.

    Attributes:
        name: of the parameter.
        stored: what it is stored in.
        master: whether the optimizer keeps an FP32 copy, so that nothing is lost between steps.
        elements: all of its numbers.
        wanted: those that the FP32 step moves.
        frozen: of those, how many a step leaves where they are as the parameter is stored now; measured.
        frozen_in: format -> how many would stay were the parameter stored in it, without an FP32 copy.
        ratio: root mean square of the update over that of the weights; nothing where the weights are 0.
    """

    name: str
    stored: str
    master: bool
    elements: int
    wanted: int
    frozen: int
    frozen_in: Mapping[str, int]
    ratio: float | None

    def share(self, name: str | None = None) -> float:
        """The share of wanted updates that are lost, as stored now or in a format."""
        found = self.frozen if name is None else self.frozen_in[name]
        return found / self.wanted if self.wanted else 0.0


@torch.no_grad()
def moved(subject: Subject, reference: Step, own: Step | None, masters: Collection[str] = ()) -> tuple[Moved, ...]:
    """What a step does to each parameter.

    A sum is rounded as the kernels round it: to FP32, and from there to the format.

    Args:
        subject: with its weights as they are stored.
        reference: its step in FP32 throughout.
        own: its step as it is configured, where a parameter is stored in 16 bit.
        masters: parameters of which the optimizer keeps an FP32 copy.
    """
    parameters = dict(subject.model.named_parameters())
    rows = []
    for name, update in reference.updates.items():
        weight = parameters[name].detach()
        is_wanted = update != 0
        frozen_in = {}
        for kind, dtype in _LOW.items():
            low = weight.to(dtype)
            frozen_in[kind] = int(((low.float() + update).to(dtype).eq(low) & is_wanted).sum())
        stored = _FORMATS.get(weight.dtype, "FP64" if weight.dtype == torch.float64 else "FP32")
        frozen = 0
        if own is not None and stored in _LOW:
            frozen = int((own.updates[name].eq(0) & is_wanted).sum())
        size = weight.float().square().mean().sqrt().item()
        rows.append(
            Moved(
                name,
                stored,
                name in masters,
                weight.numel(),
                int(is_wanted.sum()),
                frozen,
                frozen_in,
                update.square().mean().sqrt().item() / size if size else None,
            )
        )
    return tuple(rows)


def lost_epsilons(subject: Subject) -> dict[str, float]:
    """Parameters whose optimizer divides by the root of a second moment plus an epsilon that is 0 in their format.

    Only torch's own optimizers, which do their arithmetic in the parameter's format.

    Returns:
        Parameter -> its epsilon.
    """
    optimizer = subject.optimizer
    if optimizer is None or not type(optimizer).__module__.startswith("torch.optim"):
        return {}
    names = {id(parameter): name for name, parameter in subject.model.named_parameters()}
    found = {}
    for group in optimizer.param_groups:
        epsilon = group.get("eps")
        for parameter in group["params"]:
            kind = _FORMATS.get(parameter.dtype)
            if isinstance(epsilon, float) and epsilon and kind and encode(epsilon, kind).value == 0:
                found[names.get(id(parameter), "(a parameter of no module)")] = epsilon
    return found
