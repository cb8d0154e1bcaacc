"""A model without memory for its parameters, until each rank knows its share: no rank ever holds it whole."""

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

__all__ = ["fill", "placeholders"]


@contextlib.contextmanager
def placeholders() -> Iterator[None]:
    """While inside, parameters of new modules are on the meta device; buffers, whose values are computed, are not."""
    register = nn.Module.register_parameter

    def on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and parameter.device.type != "meta":
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
        register(module, name, parameter)

    nn.Module.register_parameter = on_meta  # type: ignore[method-assign]  # modules have no other door to all of them
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]  # as above


def fill(model: nn.Module, device: torch.device) -> None:
    """Give every placeholder memory on `device`, of a DTensor this rank's share; the values are whatever was there.

    A parameter that two modules share stays one: `model` has to be sharded already, which remembers that.
    """
    model._apply(lambda tensor: torch.empty_like(tensor, device=device) if tensor.device.type == "meta" else tensor)  # noqa: SLF001  # what `to_empty` calls, which would empty the buffers too
