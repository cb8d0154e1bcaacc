"""Another pair of eyes on what a recorder sees: tensors themselves, views included, which the record leaves out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch

from torchledger.tracer.recorder import Recorder

#: Told of an operation once it has run: the operation, its arguments, the tensors among them, what it returned.
Look: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any], list[torch.Tensor], Any], None]


@contextlib.contextmanager
def observed(recorder: Recorder, look: Look) -> Iterator[None]:
    """While this is on, `look` is told of every operation that the recorder runs.

    The storages of its arguments are in `recorder.storages` by then, those of its results are not yet. Where the
    operation is no view its call will be `recorder.calls[len(recorder.calls)]`. `detach` is not told of.
    """
    run = recorder._run  # noqa: SLF001  # this room's own

    def looked_at(
        func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any, tensors: list[torch.Tensor]
    ) -> Any:
        result = run(func, args, kwargs, key, tensors)
        look(func, args, kwargs, tensors, result)
        return result

    recorder._run = looked_at  # noqa: SLF001  # as above
    try:
        yield
    finally:
        recorder._run = run  # noqa: SLF001  # as above
