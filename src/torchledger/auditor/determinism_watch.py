"""`Watch`: every operation of a run in order, with a hash of what it made, and where in the model it stands."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.optim import optimizer as optimizer_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchledger.auditor.determinism_hash import tensor_hash
from torchledger.tracer.graph import Graph, Place
from torchledger.tracer.modules import ModuleStack, parameters_of
from torchledger.tracer.phases import Phases
from torchledger.tracer.source import current_source
from torchledger.tracer.threads import here

_A = torch.ops.aten
_DEVICE = torch.ops.prim.device.default
_NO_OPERATIONS = frozenset({"profiler", "prim"})
_PLAIN = frozenset({Tensor, nn.Parameter, nn.Buffer})
_ACCUMULATE = "torch::autograd::AccumulateGrad"
#: What gives memory that nobody has written yet.
EMPTY = frozenset(
    {
        _A.empty.memory_format, _A.empty_like.default, _A.empty_strided.default, _A.new_empty.default,
        _A.new_empty_strided.default, _A.empty_permuted.default,
    }
)  # fmt: skip


class Seen(NamedTuple):
    """One operation of a run.

    Attributes:
        op: its name (`aten.addmm.default`).
        module: path of the module that ran it; in the backward pass of the one whose forward it differentiates; in the
            optimizer the parameter that it writes, where that is one.
        phase: `forward`, `backward`, `recompute` or `optimizer`.
        source: `folder/file.py:12` of the user's code; in the backward pass that of the forward.
        arguments: everything that is no tensor, as text.
        shapes: of what it made or wrote.
        hashes: of what it made or wrote; nothing for one that has no data, none for memory that nobody has written.
    """

    op: str
    module: str
    phase: str
    source: str
    arguments: str
    shapes: tuple[str, ...]
    hashes: tuple[int | None, ...]


class Captured(NamedTuple):
    """The tensors of one operation: copies of what it was given, before it ran, and of what it made or wrote."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class has no types
    """Writes down what runs inside it, on real tensors.

    Args:
        model: whose modules and parameters have names.
        fill: what memory that nobody has written yet is filled with; integers take 0 for 0 and 1 for anything else.
        capture: number of the operation whose tensors are kept.

    Attributes:
        seen: the operations so far. Views are none: they make no values.
        drew: numbers of the operations that drew random numbers from a generator.
        captured: the tensors of the operation asked for.
        num_bytes: bytes hashed.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as in tracer.Recorder

    def __init__(self, model: nn.Module, *, fill: float = 0.0, capture: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[Seen] = []
        self.drew: list[int] = []
        self.captured: Captured | None = None
        self.num_bytes = 0
        self._fill = fill
        self._capture = capture
        self._model = model
        self._graph = Graph()
        self._modules = ModuleStack(lambda *_: None)
        self._phases = Phases(self._modules, backward_begins=lambda: None, backward_ends=lambda: None)
        self._names = {id(parameter): name for name, parameter in parameters_of(model).items()}
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            self._exits.callback(self._modules.unwatch)
            self._modules.watch()
            self._modules.register(self._model)
            hooks = optimizer_hooks
            self._exits.callback(hooks.register_optimizer_step_pre_hook(here(self._in_optimizer(True))).remove)
            self._exits.callback(hooks.register_optimizer_step_post_hook(here(self._in_optimizer(False))).remove)
            if "torch._dynamo" in sys.modules:
                self._exits.enter_context(torch.compiler.set_stance("force_eager"))
            return super().__enter__()  # type: ignore[no-untyped-call,no-any-return]
        except BaseException:
            self._exits.close()
            raise

    def __exit__(self, *exception: object) -> None:
        try:
            super().__exit__(*exception)  # type: ignore[no-untyped-call]
        finally:
            self._exits.close()
            self._phases.end()

    def failed_in(self, error: BaseException) -> str:
        """Path of the innermost module that an exception left."""
        return self._modules.failed_in(error)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.OpOverload):  # noqa: SLF001  # torch's class of operations
            if func is _DEVICE or func.namespace in _NO_OPERATIONS:
                return func(*args, **kwargs)
            if not _PLAIN.issuperset(types) and _unwraps(types):
                return NotImplemented  # a wrapper runs first; the operations on what it wraps come here
        node: Any = torch._C._current_autograd_node()  # noqa: SLF001  # autograd has no public door to the running node
        phase, place = self._now(node)
        if getattr(func, "is_view", False) and func is not _A.lift_fresh.default:
            return func(*args, **kwargs)
        return self._run(func, args, kwargs, phase, place)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], phase: str, place: Place) -> Any:
        number = len(self.seen)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        wanted = number == self._capture
        before = tuple(each.detach().clone() for each in given) if wanted else ()
        state = _state(func, args, kwargs)
        result = func(*args, **kwargs)
        if state is not None and state != _state(func, args, kwargs):
            self.drew.append(number)
        made = _made(func, args, kwargs, result)
        if func in EMPTY:
            for each in made:
                _fill(each, self._fill)
        if wanted:
            self.captured = Captured(before, tuple(each.detach().clone() for each in made))
        if phase == "optimizer" and not place.module:
            names = [self._names[id(each)] for each in made if id(each) in self._names]
            place = Place(names[0] if len(names) == 1 else "", source=place.source)
        plain = [leaf for leaf in tree_leaves(result) if isinstance(leaf, (bool, int, float))]  # `.item()`
        self.seen.append(
            Seen(
                str(func), place.module, phase, place.source, _arguments(args, kwargs, plain),
                tuple(f"{each.dtype}{list(each.shape)}".removeprefix("torch.") for each in made),
                () if func in EMPTY else tuple(tensor_hash(each) for each in made),
            )
        )  # fmt: skip
        self.num_bytes += sum(each.numel() * each.element_size() for each in made)
        return result

    def _now(self, node: Any) -> tuple[str, Place]:
        """Phase and place of the operation that is about to run."""
        phase = self._phases.find(node)
        if not self._phases.is_backward or (phase == "recompute" and self._phases.runs_modules_again):
            place = Place(self._modules.path, source=current_source())
        elif node is not None and node.name() == _ACCUMULATE:
            place = Place(self._names.get(id(node.variable), "").rpartition(".")[0])
        else:
            place = self._graph.place(node)
        if phase != "backward" or torch.is_grad_enabled():
            self._graph.remember(place)
        return phase, place

    def _in_optimizer(self, inside: bool) -> Any:
        def tell(*_: Any) -> None:
            self._phases.in_optimizer = inside

        return tell


def _made(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> list[Tensor]:
    """What an operation made, and what it wrote, each once."""
    found = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
    if isinstance(func, torch._ops.OpOverload):  # noqa: SLF001  # torch's class of operations
        positions, names = _written(func)
        for value in (*(args[i] for i in positions if i < len(args)), *(kwargs[n] for n in names if n in kwargs)):
            found += [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
    return list({id(each): each for each in found}.values())


@functools.cache
def _written(func: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Which arguments an operation writes, by position and by name."""
    arguments = [
        (i, each.name)
        for i, each in enumerate(func._schema.arguments)  # noqa: SLF001  # torch's own name
        if each.alias_info and each.alias_info.is_write
    ]
    return tuple(i for i, _ in arguments), tuple(name for _, name in arguments)


def _state(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | None:
    """Where the generator stands that an operation may draw from; nothing for one that never draws."""
    if torch.Tag.nondeterministic_seeded not in getattr(func, "tags", ()):
        return None
    leaves = tree_leaves((args, kwargs))
    own = next((leaf for leaf in leaves if isinstance(leaf, torch.Generator)), None)
    if own is not None:
        return bytes(own.get_state().numpy().tobytes())
    device = next((x.device for x in leaves if isinstance(x, Tensor) and x.device.type == "cuda"), None)
    state = torch.get_rng_state() if device is None else torch.cuda.get_rng_state(device)
    return bytes(state.numpy().tobytes())


def _fill(tensor: Tensor, value: float) -> None:
    if tensor.numel() and not tensor.is_meta:
        floats = tensor.is_floating_point() or tensor.is_complex()
        tensor.fill_(value if floats else int(value != 0))


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any], plain: list[Any]) -> str:
    """Everything that is no tensor, as text; other objects by their kind, for their text may be an address."""
    told = [leaf for leaf in tree_leaves((args, kwargs, plain)) if not isinstance(leaf, Tensor)]
    return ", ".join(repr(leaf) if isinstance(leaf, _REPEATS) else type(leaf).__name__ for leaf in told)


#: Values whose text is the same in every process.
_REPEATS = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


def _unwraps(types: Iterator[type]) -> bool:
    """Whether one of these is a tensor that runs operations on others inside it."""
    plain = torch._C._disabled_torch_dispatch_impl  # noqa: SLF001  # torch's mark of those that do not
    return any(cls not in _PLAIN and getattr(cls, "__torch_dispatch__", plain) is not plain for cls in types)
