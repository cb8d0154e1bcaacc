"""Collective operations as they are called: whose group, and what they return where nothing is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

#: Namespaces of torch's collectives: those of process groups, and the functional ones of DTensor and the compiler.
NAMESPACES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"})
#: Copies into and out of FSDP's buffers.
STAGING = "fsdp"
#: No collective at all: a wait returns what it is given, a wrapper an alias of it.
WAITS = frozenset({"_c10d_functional::wait_tensor", "_c10d_functional::_wrap_tensor_autograd"})


@dataclass(frozen=True, slots=True)
class Group:
    """A process group without its connections.

    Attributes:
        name: torch's name of it.
        size: ranks in it.
        rank: this rank's number in it.
    """

    name: str
    size: int
    rank: int


def plain(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a collective with its process group as a `Group`, so that equal calls are equal."""
    names = [argument.name for argument in operation._schema.arguments]  # noqa: SLF001  # torch's only way to a schema
    return (
        tuple(_plain(name, value) for name, value in zip(names, args, strict=False)),
        {name: _plain(name, value) for name, value in kwargs.items()},
    )


def run_nowhere(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a collective on fake tensors returns. Collectives of process groups write into tensors they are given.

    torch's fake process group would copy this rank's part into the place of every other's, one operation a rank.
    """
    if operation.namespace != "c10d":
        return operation(*args, **kwargs)
    from torchledger.tracer.distributed.done import done  # only builds with torch.distributed have what it needs

    returns = operation._schema.returns  # noqa: SLF001  # torch's only way to a schema
    written = args[0] if isinstance(args[0], list) else [args[0]]
    if not returns:
        return None
    return (args[0], done(written)) if len(returns) == 2 else done(written)


def _plain(name: str, value: Any) -> Any:
    if name == "group_name" or (name == "process_group" and isinstance(value, torch.ScriptObject)):
        return _group(value)
    return "" if isinstance(value, torch.ScriptObject) else value


def _group(value: Any) -> Group:
    from torch.distributed import ProcessGroup, distributed_c10d  # as above

    if isinstance(value, torch.ScriptObject):
        value = ProcessGroup.unbox(value)
    elif isinstance(value, str):
        value = distributed_c10d._resolve_process_group(value)  # type: ignore[attr-defined, arg-type]  # noqa: SLF001  # groups by name have no public door
    return Group(value.group_name, value.size(), value.rank())
