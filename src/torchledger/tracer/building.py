"""Run a function that makes a model on no memory, and see what it made: a model, with its batch, or a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from torchledger.tracer.errors import TraceError
from torchledger.tracer.explained import explained
from torchledger.tracer.fake import Fakes, as_if_real
from torchledger.tracer.function_of_nothing import require_function_of_nothing
from torchledger.tracer.reached import reach
from torchledger.tracer.recorder import Recorder
from torchledger.tracer.targets import CPU, Target
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


def built(build: Callable[[], Any], target: Target = CPU) -> Built:
    """Call a builder on fake tensors and sort what it returns.

    Args:
        build: returns a model; `(model, batch)`; a mapping with `model`, `batch` and arguments of `trace`; or a step.
            It may also be a model, or a step over models that it reaches.
        target: the device that the step will be looked at for: the builder may put tensors there.

    Raises:
        TraceError: it returns something else, or needs data or a device that is not there.
    """
    if isinstance(build, nn.Module):
        return Built(build, _own_batch(build))
    require_function_of_nothing(build, "builder")
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with undisturbed(), as_if_real():
        run, reached = reach(build, Fakes(mode))
        recorder = Recorder(fake_mode=mode, target=target)
        try:
            with reached.swapped(), mode, recorder, explained(recorder, doing="building"):
                made = run()
        except TraceError:
            if reached.copies.modules:
                return Built(step=build)  # most likely a step, whose trace may answer what it asks, or says why not
            raise
    if reached.copies.modules and (made is None or isinstance(made, (torch.Tensor, int, float))):
        return Built(step=build)
    return _sorted(build, made)


def _sorted(build: Callable[[], Any], made: Any) -> Built:
    if isinstance(made, nn.Module):
        return Built(made, _own_batch(made))
    if isinstance(made, Mapping):
        return _from_mapping(made)
    if isinstance(made, (tuple, list)) and len(made) == 2 and isinstance(made[0], nn.Module):
        return Built(made[0], made[1])
    if callable(made) and not isinstance(made, torch.Tensor):
        return Built(step=build)
    what = f"{len(made)} things" if isinstance(made, (tuple, list)) else type(made).__name__
    what = "a tensor" if isinstance(made, torch.Tensor) else "nothing" if made is None else what
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
