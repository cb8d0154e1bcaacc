"""Which parameter each operation of a forward pass reads, along which side, and where its output goes.

A dispatch mode sees every operation below autograd, whatever module or function asked for it. A parameter is known by
its storage, so that views, transposes and autocast's copies of it are still it: fan-in is then what one output really
sums over, and not a guess from a shape (`Conv1D` of GPT-2 is stored the other way round than `Linear`).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from torchledger.auditor.init_gates import Gate, gate_of
from torchledger.auditor.init_size import Size, size_of

UseKind: TypeAlias = Literal["matmul", "convolution", "embedding"]

aten = torch.ops.aten
#: Operations that multiply, and which of their arguments.
_MATMULS = {
    aten.mm: (0, 1),
    aten.addmm: (1, 2),
    aten.bmm: (0, 1),
    aten.baddbmm: (1, 2),
    aten.mv: (0, 1),
    aten._grouped_mm: (0, 1),  # noqa: SLF001  # the name is aten's
}
_CONVOLUTIONS = {aten.convolution, aten._convolution}  # noqa: SLF001  # the name is aten's
_CARRIES = {aten.clone, aten._to_copy, aten.native_dropout, aten.mul, aten.div, aten.pow}  # noqa: SLF001  # as above
_ADDS = {aten.add, aten.add_}
_RECENT = 24  # results that are remembered: an addition to the stream comes a few operations after its matmul


@dataclass(slots=True)
class Use:
    """How a parameter is used by one kind of operation.

    Attributes:
        name: the parameter's.
        kind: what reads it.
        fan_in: values that one output sums over; 1 for a look-up.
        fan_out: outputs.
        out_axis: which axis of the parameter's last two (of a convolution, the first) the outputs lie along.
        order: how many parameters were read before it.
        reads: size of what it is applied to, where that is no index.
        writes: size of what comes out, a bias included.
        is_joined: what comes out is added to something of the same shape.
        is_residual: and that is no other matmul's output: it writes to a residual stream.
        num_constant: outputs that are the same for every position; nothing where there are too few positions to tell.
    """

    name: str
    kind: UseKind
    fan_in: int
    fan_out: int
    out_axis: int
    order: int
    reads: Size | None = None
    writes: Size | None = None
    is_joined: bool = False
    is_residual: bool = False
    num_constant: int | None = None


@dataclass(slots=True)
class Seen:
    """What the mode has seen: uses by parameter and kind, gates, and the names of parameters that anything read."""

    uses: dict[tuple[str, UseKind], Use] = field(default_factory=dict)
    gates: list[Gate] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)


class Uses(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class has no types
    """Looks at a forward pass.

    Args:
        model: whose parameters are looked for.
        place: the path of the module that is running.
    """

    def __init__(self, model: nn.Module, place: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.seen = Seen()
        self._place = place
        self._names = {key(p): name for name, p in model.named_parameters() if p.numel() and key(p)}
        self._shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
        self._kept: list[Tensor] = []  # autocast's copies: while they live nobody else has their storage
        self._recent: OrderedDict[int, tuple[Tensor, frozenset[str]]] = OrderedDict()

    def __torch_dispatch__(
        self, func: Any, types: Iterable[Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operation as it is, then look at what it read and wrote."""
        out = func(*args, **(kwargs or {}))
        with torch.no_grad():
            self._look(func, args, dict(kwargs or {}), out)
        return out

    def _look(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        packet = func.overloadpacket
        first = out[0] if isinstance(out, (tuple, list)) and out else out
        for each in args:
            if isinstance(each, Tensor) and (name := self._name(each)) is not None:
                self.seen.touched.add(name)
        if packet in _MATMULS:
            data, weight = (args[place] for place in _MATMULS[packet])
            self._matmul(data, weight, first)
        elif packet in _CONVOLUTIONS:
            self._convolution(args, first)
        elif packet is aten.embedding:
            self._embedding(args[0], first)
        elif packet in _ADDS:
            self._added(args[0], args[1], first)
        elif packet in _CARRIES:
            self._carried(packet, args, first)
        elif (gate := gate_of(packet, args, kwargs, out, self._place())) is not None:
            self.seen.gates.append(gate)

    def _name(self, tensor: Tensor) -> str | None:
        return self._names.get(key(tensor)) if tensor.is_floating_point() else None

    def _matmul(self, left: Tensor, right: Tensor, out: Tensor) -> None:
        name, data = self._name(right), left
        fan_in = right.shape[-2] if right.ndim > 1 else right.shape[0]
        fan_out = right.shape[-1] if right.ndim > 1 else 1
        weight, is_right = right, True
        if name is None:
            name, data, weight, is_right = self._name(left), right, left, False
            fan_in, fan_out = left.shape[-1], left.shape[-2]
        if name is None or not fan_in:
            return
        shape = self._shapes[name]
        if len(shape) == 2 and math.prod(shape) % fan_in == 0:
            fan_out = math.prod(shape) // fan_in  # the whole of it, where a part was used
        # Which axis of the parameter the outputs are on: its strides tell, transposed or not.
        ends = weight.stride(-1) <= weight.stride(-2) if weight.ndim > 1 else True
        out_axis = int(ends == is_right)
        features = -1 if is_right or out.ndim == 1 else -2  # one: of a matrix and a vector
        self._write(Use(name, "matmul", fan_in, fan_out, out_axis, len(self.seen.uses)), data, out, features)

    def _convolution(self, args: tuple[Any, ...], out: Tensor) -> None:
        data, weight = args[0], args[1]
        name = self._name(weight)
        if name is None:
            return
        kernel = math.prod(weight.shape[2:])
        is_transposed, groups = bool(args[6]), args[8]
        # [out, in/groups, ...]; transposed [in, out/groups, ...], where each output sees one of stride·stride kernels.
        if is_transposed:
            fan_in = max(weight.shape[0] // groups * kernel // math.prod(args[3]), 1)
            fan_out = weight.shape[1] * kernel
        else:
            fan_in, fan_out = weight.shape[1] * kernel, weight.shape[0] // groups * kernel
        self._write(Use(name, "convolution", fan_in, fan_out, int(is_transposed), len(self.seen.uses)), data, out, 1)

    def _embedding(self, table: Tensor, out: Tensor) -> None:
        if (name := self._name(table)) is not None:
            self._write(Use(name, "embedding", 1, table.shape[1], 1, len(self.seen.uses)), None, out, -1)

    def _write(self, use: Use, data: Tensor | None, out: Tensor, features: int) -> None:
        known = self.seen.uses.get((use.name, use.kind))
        if known is None:
            self.seen.uses[use.name, use.kind] = use
            use.reads = None if data is None else size_of(data)
            use.writes = size_of(out)
            use.num_constant = _num_constant(out, features)
        if use.kind != "embedding":
            self._remember(out, frozenset((use.name,)))

    def _remember(self, out: Tensor, names: frozenset[str]) -> None:
        self._recent[key(out)] = (out, names)
        self._recent.move_to_end(key(out))
        while len(self._recent) > _RECENT:
            self._recent.popitem(last=False)

    def _from(self, tensor: Any) -> frozenset[str]:
        """Parameters whose output a tensor is."""
        found = self._recent.get(key(tensor)) if isinstance(tensor, Tensor) else None
        return frozenset() if found is None else found[1]

    def _added(self, left: Any, right: Any, out: Tensor) -> None:
        mine, other = self._from(left), self._from(right)
        if not isinstance(left, Tensor) or not isinstance(right, Tensor) or left.shape != right.shape:
            if mine | other:
                self._remember(out, mine | other)  # a bias, or a number
            return
        for use in self.seen.uses.values():
            if use.name in mine | other:
                use.is_joined |= not mine & other  # a polynomial of one output joins nothing
                use.is_residual |= not (mine and other) and use.fan_out == out.shape[-1]
        if mine and other:
            self._remember(out, mine | other)

    def _carried(self, packet: Any, args: tuple[Any, ...], out: Tensor) -> None:
        name = self._name(args[0]) if isinstance(args[0], Tensor) else None
        if name is not None and packet in {aten._to_copy, aten.clone} and key(out) != key(args[0]):  # noqa: SLF001  # the name is aten's
            self._kept.append(out)
            self._names[key(out)] = name
        elif names := self._from(args[0]) | self._from(args[1] if len(args) > 1 else None):
            others = [each for each in args[:2] if isinstance(each, Tensor) and each.shape != out.shape]
            if all(each.ndim < 2 for each in others):  # a number, a vector, or dropout's mask
                self._remember(out, names)


def key(tensor: Tensor) -> int:
    """What is the same for tensors of one storage; 0 where there is none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:  # of which what has no storage raises a kind
        return 0


def _num_constant(out: Tensor, features: int) -> int | None:
    """Outputs that are the same for every position."""
    flat = out.detach().movedim(features, -1).reshape(-1, out.shape[features])
    if len(flat) < 8:
        return None
    low, high = torch.aminmax(flat, dim=0)
    return int((low == high).sum())
