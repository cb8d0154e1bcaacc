"""Run a function that makes a model on no memory, and see what it made: a model, with its batch, or a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from torchledger.tracer.errors import TraceError
from torchledger.tracer.fake import as_if_real
from torchledger.tracer.undisturbed import undisturbed

_KEYS = ("model", "batch", "loss", "optimizer", "precision", "gradient_clip", "accumulation_steps", "set_to_none")


@dataclass(frozen=True, slots=True)
class Built:
    """What a builder made.

    Attributes:
        model: the model; `None` where a step was returned.
        batch: what it takes, where it was given.
        step: the builder itself, for `trace_step`, where a step was returned.
        options: loss, optimizer and other arguments of `trace` that were given.
    """

    model: nn.Module | None = None
    batch: Any = None
    step: Callable[[], Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def built(build: Callable[[], Any]) -> Built:
    """Call a builder on fake tensors and sort what it returns.

    Args:
        build: returns a model; `(model, batch)`; a mapping with `model`, `batch` and arguments of `trace`; or a step.

    Raises:
        TraceError: it returns something else.
    """
    with undisturbed(), as_if_real(), FakeTensorMode(allow_non_fake_inputs=True):
        made = build()
    if isinstance(made, nn.Module):
        return Built(made, _own_batch(made))
    if isinstance(made, Mapping):
        return _from_mapping(made)
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module):
        return Built(made[0], made[1])
    if callable(made) and not isinstance(made, torch.Tensor):
        return Built(step=build)
    what = f"{len(made)} things" if isinstance(made, (tuple, list)) else type(made).__name__
    raise TraceError(
        f"the function returns {what}",
        remedy="Return a model, (model, batch), a dict with `model` and `batch`, or a step (a function of nothing)",
    )


def _from_mapping(made: Mapping[str, Any]) -> Built:
    unknown = [str(key) for key in made if key not in _KEYS]
    if unknown or not isinstance(made.get("model"), nn.Module):
        problem = f"unknown keys {', '.join(unknown)}" if unknown else "no `model`"
        raise TraceError(f"the function returns a dict with {problem}", remedy=f"Its keys are {', '.join(_KEYS)}")
    options = {key: value for key, value in made.items() if key not in {"model", "batch"}}
    batch = made["batch"] if "batch" in made else _own_batch(made["model"])
    return Built(made["model"], batch, options=options)


def _own_batch(model: nn.Module) -> Any:
    """The batch that a model brings along, as Lightning modules may."""
    return getattr(model, "example_input_array", None)
