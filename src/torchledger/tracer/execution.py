"""How an operation gets its result: by running, from memory, or by standing in for what fake tensors refuse."""

from __future__ import annotations

from typing import Any

import torch

from torchledger.tracer.distributed import collectives
from torchledger.tracer.errors import TraceError
from torchledger.tracer.kernel_formats import MENDED, as_kernels_do
from torchledger.tracer.layouts import made_of
from torchledger.tracer.memo import Memo, Result
from torchledger.tracer.routes import FOLLOWED
from torchledger.tracer.routing import Routing
from torchledger.tracer.stand_in import STAND_INS, stand_in
from torchledger.tracer.values import Values

_SPARSE = torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors.default  # noqa: SLF001  # torch's own name
_CLONE = torch.ops.aten.clone.default
#: Views of a sparse tensor's parts, and which part they are of; a clone is of both.
_PARTS = {torch.ops.aten._indices.default: 0, torch.ops.aten._values.default: 1, _CLONE: -1}  # noqa: SLF001  # as above
_LIFT_FRESH = torch.ops.aten.lift_fresh.default
#: Operations whose results geometry does not tell.
_SHAPED = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view})
# Of meta nothing is stored, and fake tensors of it are safe.
_THERE = frozenset({"cpu", "meta"})


class Execution:
    """Runs operations, each kind of call on fake tensors once.

    Args:
        memo: makes results on the fake mode that is on, `None` without one.
        routing: what routers would decide.

    Attributes:
        run: runs an operation, values that shapes decide with it.
    """

    def __init__(self, memo: Memo | None, routing: Routing) -> None:
        self._memo = memo
        self._routing = routing
        self._known: dict[Any, Result] = {}
        self.run = self._execute if memo is None else Values(self._followed, routing.assume).run

    def _followed(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any, tensors: list[torch.Tensor]
    ) -> Any:
        result = self._execute(func, args, kwargs, key, tensors)
        if func in FOLLOWED:
            self._routing.follow(func, args, result)
        return result

    def _execute(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any, tensors: list[torch.Tensor]
    ) -> Any:
        """Run an operation, or make its result as it was the last time where that is all it does.

        Args:
            func: the operation.
            args: its arguments.
            kwargs: more of them.
            key: what is equal for equal calls.
            tensors: the tensors among its arguments.

        Raises:
            TraceError: it asks for a device on which fake tensors abort the process.
        """
        memo = self._memo
        if memo is not None and kwargs and "device" in kwargs:
            _refuse_absent(kwargs["device"])
        if memo is None or not tensors:
            return func(*args, **kwargs)
        if func.namespace in collectives.NAMESPACES:
            return collectives.run_nowhere(func, args, kwargs)
        if func in STAND_INS and (result := stand_in(func, args, kwargs, self._routing)) is not None:
            return result
        if func in _PARTS and (parts := getattr(args[0], "stored_parts", None)) is not None:
            if func is _CLONE:
                return made_of(func(*args, **kwargs), parts[0].clone(), parts[1].clone())
            return parts[_PARTS[func]].detach()
        if func.namespace != "aten" or not memo.knows(tensors):
            if func is not _LIFT_FRESH and memo.has_real(tensors):
                args, kwargs = memo.faked(args, kwargs)
            return func(*args, **kwargs)
        known = self._known.get((func, key))
        if known is not None:
            return memo.make(known, tensors)
        result = func(*args, **kwargs)
        if func is _SPARSE:
            return made_of(result, args[3], args[4])
        if func in MENDED:
            result = as_kernels_do(func, args, result, self._routing.assume)
        learnt = memo.learn(result, tensors) if _SHAPED.isdisjoint(func.tags) else None
        if learnt is not None:
            self._known[func, key] = learnt
        return result


def _refuse_absent(device: torch.device | None) -> None:
    """Fakes stand on the CPU. Where autograd sees one on a device that is not there, torch aborts the process."""
    if device is not None and device.type not in _THERE:
        raise TraceError(
            f"this needs a device that is not there ({device})",
            remedy="Make tensors where the module's parameters are (`x.device`) instead of on a fixed device"
            + ("; or trace with target='cuda'" if device.type == "cuda" else ""),
        )
