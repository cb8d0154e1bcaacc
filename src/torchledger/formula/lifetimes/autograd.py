"""Autograd without numbers: which tensors a node keeps, in which order nodes run, and what is added up in place.

As torch's engine does it: of the nodes whose gradients are all there the one made last runs first, gradients go to
their parameters at once (torch/csrc/autograd/engine.cpp); what a node kept goes when it has run; gradients of one
tensor are added into the first where nobody else holds it (torch/csrc/autograd/input_buffer.cpp).
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

from torchledger.formula.layout import contiguous
from torchledger.formula.lifetimes.memory import Block, Memory
from torchledger.formula.lifetimes.tensors import Tensor, like_strides, made

Gradients: TypeAlias = "list[Tensor | None]"
#: What gives a kept tensor back: itself, or what a checkpoint makes again.
Kept: TypeAlias = "Tensor | Remade | None"
#: From what was kept and the gradients of the results: the gradients of the operands. What a formula makes besides goes
#: into the list, which is emptied when the gradients of the results are gone.
Formula: TypeAlias = Callable[["list[Tensor | None]", Gradients, "list[Tensor]"], Gradients]


class Remade:
    """A tensor that is not kept: a checkpoint makes it again when it is asked for."""

    __slots__ = ("__weakref__", "again", "value")

    def __init__(self, again: Callable[[], None]) -> None:
        self.again = again
        self.value: Tensor | None = None

    def take(self) -> Tensor | None:
        """The tensor, which is then held by whoever asked alone."""
        if self.value is None:
            self.again()
        value, self.value = self.value, None
        return value


class Parameter:
    """A parameter: its tensor, whose bytes whoever made the model counts, and the gradient that was added up so far."""

    __slots__ = ("gradient", "name", "tensor")

    def __init__(self, memory: Memory, name: str, shape: Sequence[int], number_format: str, *, trained: bool) -> None:
        self.name = name
        self.tensor = Tensor(Block(memory, 0, "parameters"), shape, contiguous(shape), number_format)
        self.tensor.leaf = self if trained else None
        self.gradient: Tensor | None = None

    def accumulate(self, arrived: Gradients) -> None:
        """Take a gradient, or add it to what is there."""
        if self.gradient is not None or arrived[0] is None:
            return
        is_taken = _references(arrived, 0)[0] > _TAKEN
        gradient = arrived[0]
        if is_taken or not _same_layout(gradient, self.tensor):
            gradient = made(gradient.memory, gradient.shape, gradient.number_format, self.tensor.strides)
        gradient.block.becomes("gradients")
        self.gradient = Tensor(gradient.block, self.tensor.shape, self.tensor.strides, gradient.number_format)


def _same_layout(gradient: Tensor, parameter: Tensor) -> bool:
    return all(n == 1 or a == b for n, a, b in zip(parameter.shape, gradient.strides, parameter.strides, strict=True))


class Node:
    """One operation's gradient.

    Attributes:
        formula: gradients of the operands.
        kept: what it needs for that.
        edges: for each operand where its gradient goes: a node and its result's number, a parameter, or nowhere.
        shapes: sizes and formats of the operands, which their gradients are brought to.
        number: how many were made before it.
        place: what ran when it was made.
        num_results: how many results it has.
    """

    __slots__ = ("edges", "formula", "kept", "num_results", "number", "place", "shapes")

    def __init__(self, operands: Sequence[Tensor | None], memory: Memory) -> None:
        self.formula: Formula | None = None
        self.kept: list[Kept] = []
        self.edges = [None if each is None else _edge(each) for each in operands]
        self.shapes = [None if each is None else (each.shape, each.number_format) for each in operands]
        self.number, self.place, self.num_results = memory.num_nodes, memory.place, 1

    def run(self, gradients: Gradients, late: list[Tensor]) -> Gradients:
        """Gradients of the operands; what it kept goes, and what it made for itself is `late` to go."""
        kept = [each.take() if isinstance(each, Remade) else each for each in self.kept]
        assert self.formula is not None
        found = self.formula(kept, gradients, late)
        del kept  # what a checkpoint made again goes here
        for number, edge in enumerate(self.edges):
            if edge is None:
                found[number] = None
            elif found[number] is not None:
                operand = self.shapes[number]
                assert operand is not None
                _brought(found, number, operand, late)
        return found


def _brought(found: Gradients, number: int, operand: tuple[tuple[int, ...], str], late: list[Tensor]) -> None:
    """A gradient in the sizes and the format of its operand (`validate_outputs` in torch/csrc/autograd/engine.cpp)."""
    shape, number_format = operand
    given = found[number]
    assert given is not None
    if given.shape != shape:
        late.clear()
        found[number] = summed_to(given, shape)
        late.append(given)
        given = found[number]
        assert given is not None
    if given.number_format != number_format:
        late.clear()
        found[number] = made(given.memory, given.shape, number_format, like_strides(given))
        late.append(given)


def begun(operands: Sequence[Tensor | None], *keeps: Tensor | None) -> Node | None:
    """The node of an operation, which keeps operands before it runs; nothing where nothing has a gradient."""
    memory = next(each for each in operands if each is not None).memory
    if not memory.records or not any(each is not None and each.needs_gradient for each in operands):
        return None
    memory.num_nodes += 1
    node = Node(operands, memory)
    node.kept = [_kept(each) for each in keeps]
    return node


def ended(node: Node | None, formula: Formula, *results: Tensor, keeps: Sequence[Tensor] = ()) -> None:
    """The results are there; some of them are kept."""
    if node is None:
        return
    node.formula, node.num_results = formula, len(results)
    node.kept += [_kept(each) for each in keeps]
    for slot, each in enumerate(results):
        each.node, each.slot = node, slot


def _kept(x: Tensor | None) -> Kept:
    if x is None:
        return None
    region = x.memory.region
    if region is not None:
        return region.keep(x)
    if x.block.part == "temporaries":
        x.block.becomes("activations")
    return x.detached()


def summed_to(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The sum over what was repeated, first dimensions and those of size 1 (`at::sum_to`)."""
    more = len(x.shape) - len(shape)
    sizes = [1] * more + [n if m == n else 1 for n, m in zip(shape, x.shape[more:], strict=True)]
    found = made(x.memory, sizes, x.number_format)
    return found.viewed(shape, found.strides[more:]) if more else found


def _edge(x: Tensor) -> tuple[Node, int] | Parameter | None:
    return (x.node, x.slot) if x.node is not None else x.leaf


def backward(root: Tensor, gradient: Tensor) -> None:
    """Run all nodes that `root` came from. `gradient` is held until the end, as by whoever asked for it."""
    assert root.node is not None
    memory, first = root.memory, root.node
    waits = _dependencies(first)
    buffers: dict[Node | Parameter, Gradients] = {first: [gradient]}
    ready = [(-first.number, first)]
    records, memory.records = memory.records, False
    while ready:
        _, node = heapq.heappop(ready)
        memory.place = node.place
        gradients, late = buffers.pop(node), []  # type: ignore[var-annotated]
        found = node.run(gradients, late)
        edges, node.edges, node.kept, node.formula = node.edges, [], [], None
        del gradients
        late.clear()
        for number, edge in enumerate(edges):
            if edge is None:
                continue
            target, slot = edge if isinstance(edge, tuple) else (edge, 0)
            waiting = buffers.setdefault(target, [None] * (target.num_results if isinstance(target, Node) else 1))
            if found[number] is not None:
                _add(waiting, slot, found, number)
            waits[target] -= 1
            if waits[target]:
                continue
            if isinstance(target, Node):
                heapq.heappush(ready, (-target.number, target))
            else:
                del waiting
                target.accumulate(buffers.pop(target))
    memory.records = records


def _dependencies(first: Node) -> dict[Node | Parameter, int]:
    """How many gradients come to each node and parameter."""
    waits: dict[Node | Parameter, int] = {}
    seen, stack = {first}, [first]
    while stack:
        for edge in stack.pop().edges:
            target = edge[0] if isinstance(edge, tuple) else edge
            if target is None:
                continue
            waits[target] = waits.get(target, 0) + 1
            if isinstance(target, Node) and target not in seen:
                seen.add(target)
                stack.append(target)
    return waits


def _add(buffer: Gradients, slot: int, given: Gradients, number: int) -> None:
    """Move a gradient into a buffer, or add it to what is there: in place where nobody else holds that."""
    if buffer[slot] is None:
        buffer[slot], given[number] = given[number], None
        return
    references = _references(buffer, slot)
    before = buffer[slot]
    assert before is not None
    if references[0] > _ALONE[0] or references[1] > _ALONE[1] or before.is_view or not before.is_dense:
        buffer[slot] = made(before.memory, before.shape, before.number_format, like_strides(before))
    given[number] = None


def _references(held: Gradients, slot: int) -> tuple[int, int]:
    """References to a tensor in a list, and to its block."""
    each = held[slot]
    assert each is not None
    return sys.getrefcount(each), sys.getrefcount(each.block)


def is_alone(x: Tensor) -> bool:
    """Whether nobody else holds the block of a tensor that a table has."""
    return sys.getrefcount(x.block) <= _ALONE[1]


#: What is counted of a tensor that a list alone holds; and where its block does not matter.
_ALONE = _references([made(Memory(), (1,), "fp32")], 0)
_TAKEN = _ALONE[0]
