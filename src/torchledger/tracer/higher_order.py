"""Higher-order operations (cond, while_loop, scan, map): their bodies run under the recorder, as often as they would.

What a value decides that a traced step does not have is assumed and said: of two branches the one that contracts more
is taken. A loop whose end is data is one line of unknown FLOPs that names what one iteration costs.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import torch
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

from torchledger.ledger import CONTRACTIONS
from torchledger.tracer.errors import TraceError
from torchledger.tracer.layouts import results_of
from torchledger.tracer.masks import INDEXED, taken
from torchledger.tracer.pricing import price
from torchledger.tracer.signature import Encoder, decode, meta_of
from torchledger.tracer.targets.cuda.replacing import INSTEAD, KEPT_WHOLE

#: A loop over known values runs as it would in reality; one that goes on for longer than this most likely never ends.
_MOST_ITERATIONS = 100_000
_BRANCH = "a branch that data decides: of the two of `cond` the one that contracts more is counted"


class Recording(Protocol):
    """What a higher-order operation needs of the recorder: a dispatch mode, and a place for what was assumed."""

    assumptions: list[str]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record one operation."""


@contextlib.contextmanager
def run_plainly(recorder: Recording) -> Iterator[None]:
    """While this is on, control flow runs as the Python it stands for, with autograd on what its bodies reach.

    torch makes graphs of the bodies and differentiates those; a compiler hands it the tensors that the bodies reach for
    outside their arguments, which nobody does in an eager run, and so their gradients would be missing.
    """
    replaced = []
    for module, name in _WHERE.items():
        operation = getattr(sys.modules.get(module), name, None)
        if isinstance(operation, HigherOrderOperator) and DispatchKey.Autograd in operation.py_kernels:
            replaced.append((operation, operation.py_kernels[DispatchKey.Autograd]))
            run = _RUNS[operation.name()]  # type: ignore[no-untyped-call]  # torch has no types here
            operation.py_kernels[DispatchKey.Autograd] = partial(run, recorder, contextlib.nullcontext, operation)
            operation._dispatch_cache.clear()  # noqa: SLF001  # it holds the kernel that was there
    try:
        yield
    finally:
        for operation, kernel in replaced:
            operation.py_kernels[DispatchKey.Autograd] = kernel
            operation._dispatch_cache.clear()  # noqa: SLF001  # as above


def is_whole(func: Any) -> bool:
    """Whether an operation may stand for others: a higher-order one, one made of others (`linear`), `x[mask]`.

    Autograd takes the latter apart before they come here; in inference mode nobody does, though the kernels that run
    are the same.
    """
    known = _WHOLE.get(func)
    if known is None:
        composite = "CompositeImplicitAutograd"
        known = _WHOLE[func] = isinstance(func, HigherOrderOperator) or (
            isinstance(func, OpOverload)
            and func.namespace == "aten"
            and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), composite)  # type: ignore[no-untyped-call]  # noqa: SLF001  # how torch asks
            # `silu_backward` is made of others only where a device has no kernel of it.
            and not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CPU")  # type: ignore[no-untyped-call]  # noqa: SLF001  # as above
        )
    return known and func not in KEPT_WHOLE


def run_whole(recorder: Recording, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operation that stands for others, which were recorded; `NotImplemented` where it stands alone.

    Args:
        recorder: the recorder.
        func: the operation.
        args: its arguments.
        kwargs: more of them.
    """
    if isinstance(func, HigherOrderOperator):
        run = _RUNS.get(func.name())  # type: ignore[no-untyped-call]  # torch has no types here
        if run is None:
            return NotImplemented
        return run(recorder, lambda: _recorded(recorder), func, *args, **kwargs)
    if func in INDEXED:
        return taken(lambda: _recorded(recorder), func, args, kwargs)
    TorchDispatchMode.__enter__(recorder)  # type: ignore[no-untyped-call,arg-type]  # which is such a mode
    try:
        instead = INSTEAD.get(func)  # what the target runs
        return func.decompose(*args, **kwargs) if instead is None else instead(*args, **kwargs)
    finally:
        TorchDispatchMode.__exit__(recorder, None, None, None)  # type: ignore[no-untyped-call,arg-type]  # as above


class _Once:
    """A loop's body as one operation of the loop's name, for a loop whose end is data."""

    namespace = "higher_order"
    is_view = False
    tags = ()

    def __init__(self, name: str, body: Callable[..., Any]) -> None:
        self._name = name
        self._body = body

    def name(self) -> str:
        """The loop's name."""
        return self._name

    def __call__(self, *operands: Any, flops_per_iteration: int) -> Any:
        """Run the body once; what it costs was told."""
        del flops_per_iteration
        return self._body(*operands)


@contextlib.contextmanager
def _recorded(recorder: Any) -> Iterator[None]:
    """Operations inside are recorded again, though one is being handled."""
    TorchDispatchMode.__enter__(recorder)  # type: ignore[no-untyped-call]  # torch has no types here
    try:
        yield
    finally:
        TorchDispatchMode.__exit__(recorder, None, None, None)  # type: ignore[no-untyped-call]  # torch has no types here


class _Decomposed(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class has no types
    """Operations that are made of others come as those; past autograd nothing else takes them apart."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        with self:
            result = func.decompose(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if result is NotImplemented else result


class _Costs(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class has no types
    """Contraction FLOPs of what runs inside, and nothing else of it."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops: int = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        if isinstance(func, HigherOrderOperator) or func.is_view:
            return result
        signature = decode(str(func), Encoder().key(args, kwargs or {}, []))
        metas = tuple(meta_of(tensor) for tensor in results_of(result))
        pieces = price(signature, metas).pieces
        self.flops += sum(piece.work.flops_full or 0 for piece in pieces if piece.kind in CONTRACTIONS)
        return result


def _cost(function: Callable[..., Any], operands: Sequence[Any]) -> int:
    """Contraction FLOPs of a function, nothing of which is recorded."""
    fakes = [operand.fake_mode for operand in operands if isinstance(operand, FakeTensor)]
    fake = fakes[0] if fakes else contextlib.nullcontext()
    with _disable_current_modes(), torch.no_grad(), fake, _Costs() as costs, _Decomposed():  # type: ignore[no-untyped-call]  # torch has no types here
        function(*operands)
    return int(costs.flops)


def _cond(  # noqa: PLR0917  # torch's arguments in torch's order
    recorder: Recording,
    inside: _Context,
    _: Any,
    predicate: Any,
    true: Callable[..., Any],
    false: Callable[..., Any],
    operands: Sequence[Any],
) -> Any:
    try:
        taken = true if bool(predicate) else false
    except DataDependentOutputException:
        taken = max((true, false), key=lambda branch: _cost(branch, operands))
        recorder.assumptions.append(_BRANCH)
    with inside():
        return taken(*operands)


def _while_loop(  # noqa: PLR0917  # as above
    recorder: Recording,
    inside: _Context,
    func: Any,
    condition: Callable[..., Any],
    body: Callable[..., Any],
    carried: Sequence[Any],
    others: Sequence[Any],
) -> Any:
    state = tuple(carried)
    for _ in range(_MOST_ITERATIONS):
        try:
            with inside():
                goes_on = bool(condition(*state, *others))
        except DataDependentOutputException:
            costs = {"flops_per_iteration": _cost(body, (*state, *others))}
            return recorder.__torch_dispatch__(_Once(func.name(), body), (), (*state, *others), costs)
        if not goes_on:
            return state
        with inside():
            state = tuple(body(*state, *others))
    raise TraceError(
        f"a while_loop has not ended after {_MOST_ITERATIONS:,} iterations over values that are known",
        remedy="Start it from values that end it, or from random ones: their count is then said to be unknown",
    )


def _scan(  # noqa: PLR0917  # as above
    recorder: Recording,
    inside: _Context,
    _: Any,
    combine: Callable[..., Any],
    init: Sequence[torch.Tensor],
    xs: Sequence[torch.Tensor],
    others: Sequence[Any] = (),
) -> list[torch.Tensor]:
    del recorder
    carry, rows = list(init), []
    with inside():
        for number in range(xs[0].shape[0]):
            made = list(combine(*carry, *(x[number] for x in xs), *others))
            carry = made[: len(init)]
            rows.append(made[len(init) :])
        return [*carry, *(torch.stack(column) for column in zip(*rows, strict=True))]


def _map(  # as above
    recorder: Recording,
    inside: _Context,
    _: Any,
    function: Callable[..., Any],
    xs: Sequence[torch.Tensor],
    others: Sequence[Any],
) -> Any:
    del recorder
    with inside():
        rows = [function(*(x[number] for x in xs), *others) for number in range(xs[0].shape[0])]
        return tree_map(lambda *column: torch.stack(column), *rows)


_WHOLE: dict[Any, bool] = dict.fromkeys(INDEXED, True)
_Context: TypeAlias = Callable[[], contextlib.AbstractContextManager[None]]
_RUNS: dict[str, Callable[..., Any]] = {"cond": _cond, "while_loop": _while_loop, "scan": _scan, "map_impl": _map}
#: Where torch keeps them.
_WHERE = {
    "torch._higher_order_ops.cond": "cond_op",
    "torch._higher_order_ops.while_loop": "while_loop_op",
    "torch._higher_order_ops.scan": "scan_op",
    "torch._higher_order_ops.map": "map_impl",
}
