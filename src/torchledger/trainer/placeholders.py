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
    made: set[nn.Parameter] = set()  # a tied one is registered twice

    def on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and parameter not in made:
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
            made.add(parameter)
        register(module, name, parameter)

    nn.Module.register_parameter = on_meta  # type: ignore[method-assign, assignment]  # modules have no other door to all of them
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]  # as above


def fill(model: nn.Module, device: torch.device) -> None:
    """Give every placeholder memory on `device`, of a DTensor this rank's share; the values are whatever was there.

    A parameter that two modules share stays one.
    """
    owners: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            owners.setdefault(parameter, []).append((module, name))
    # What `to_empty` calls, which would empty the buffers too; shards learn of their new tensors by it.
    model._apply(lambda tensor: torch.empty_like(tensor, device=device) if tensor.device.type == "meta" else tensor)  # type: ignore[no-untyped-call]  # noqa: SLF001  # as above
    for (first, its_name), *others in owners.values():
        for module, name in others:
            setattr(module, name, getattr(first, its_name))
