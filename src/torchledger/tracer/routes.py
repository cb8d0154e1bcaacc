"""What tensors of a mixture of experts say of its routing, followed from the router's choice to the loop over experts.

A router chooses experts by their numbers (`topk`, `argmax`). What loops ask is made of these numbers by a handful of
operations: which entries are expert 3's (`chosen == 3`, a class of `one_hot(chosen)`), how many each expert has
(`bincount`, `histc`, a sum of one-hot rows). A tensor carries what it says along; anything else carries nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch

_ROUTE = "torchledger_route"
_aten: Any = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Route:
    """What a tensor says.

    Attributes:
        says: `choices` are numbers of experts; `classes` has one entry for each choice and expert, or each token and
            expert; a `mask` is where one expert was chosen.
        num_choices: how many choices were made in all, for `classes` and `mask`.
        expert: whose mask it is.
        experts: how many experts there are, for a `mask`: what is done with it backward is done outside of modules.
    """

    says: Literal["choices", "classes", "mask"]
    num_choices: int = 0
    expert: int = -1
    experts: int = 0


_Made: TypeAlias = tuple[Any, ...]
#: Operations that choose -> which of their results are the numbers.
CHOOSE = {_aten.topk.default: 1, _aten.max.dim: 1, _aten.argmax.default: None, _aten.multinomial.default: None}
#: Operations whose result says what their first operand says.
KEEP = frozenset(
    {
        _aten.view.default, _aten._unsafe_view.default, _aten.unsqueeze.default, _aten.squeeze.default,  # noqa: SLF001  # torch's own names
        _aten.squeeze.dim, _aten.squeeze.dims, _aten.permute.default, _aten.transpose.int, _aten.t.default,
        _aten.expand.default, _aten.clone.default, _aten._to_copy.default, _aten.alias.default,  # noqa: SLF001  # as above
    }
)  # fmt: skip
#: Those whose result still holds choices, if fewer or in another order.
KEEP_CHOICES = frozenset({_aten.slice.Tensor, _aten.index.Tensor, _aten.select.int})
#: Those that give one class of many, or each of them.
_SELECT, _UNBIND = _aten.select.int, _aten.unbind.int
#: Those that keep what a mask or classes say: comparisons with 0 or 1, and what adds up a token's choices.
COMPARE = frozenset({_aten.eq.Scalar, _aten.gt.Scalar, _aten.ne.Scalar, _aten.ge.Scalar})
ADD_UP = frozenset({_aten.any.dim, _aten.any.dims, _aten.sum.dim_IntList})
#: Those that write ones at the chosen classes: the place of the choices among their arguments.
SCATTER = frozenset({_aten.scatter_.value, _aten.scatter.value, _aten.scatter_.src, _aten.scatter_add_.default})
#: Those that put a mask in one number.
SUM_UP = frozenset({_aten.any.default, _aten.sum.default, _aten.count_nonzero.dim_IntList, _aten.count_nonzero.default})
HISTOGRAM = _aten.histc.default
_CLASSES = _aten.eq.Tensor
#: All that are followed.
FOLLOWED = (
    frozenset(CHOOSE)
    | KEEP
    | KEEP_CHOICES
    | COMPARE
    | ADD_UP
    | SCATTER
    | SUM_UP
    | frozenset({HISTOGRAM, _CLASSES, _UNBIND})
)


def route_of(tensor: Any) -> Route | None:
    """What a tensor says of routing, `None` for nothing."""
    route: Route | None = getattr(tensor, "__dict__", {}).get(_ROUTE)
    return route


def follow(func: Any, args: _Made, result: Any, experts: int) -> None:
    """Let a result say what it says.

    Args:
        func: one of `FOLLOWED`.
        args: its arguments.
        result: what it returned.
        experts: how many there are where it runs, 0 outside of experts.
    """
    if func in CHOOSE:
        place = CHOOSE[func]
        _say(result if place is None else result[place], Route("choices"))
        return
    route = route_of(args[2] if func in SCATTER else args[0])
    if route is None:
        return
    if func is _UNBIND:
        for number, each in enumerate(result):
            _keep(each, _selected(args[0], args[1] if len(args) > 1 else 0, number, route, experts))
    elif isinstance(result, torch.Tensor):
        _keep(result, _made(func, args, result, route, experts))


def _made(func: Any, args: _Made, result: torch.Tensor, route: Route, experts: int) -> Route | None:
    if func in KEEP:
        return route
    if route.says == "choices":
        return _of_choices(func, args, result, experts)
    if func in COMPARE or func in ADD_UP:
        return route if route.says == "mask" or experts in result.shape else None
    return _selected(args[0], args[1], args[2], route, experts) if func is _SELECT else None


def _selected(operand: torch.Tensor, dim: int, index: int, route: Route, experts: int) -> Route | None:
    """One class is the mask of its expert, one choice of each token is among the choices."""
    if route.says == "classes" and operand.shape[dim] == experts:
        return replace(route, says="mask", expert=index % experts, experts=experts)
    return route if route.says == "choices" else None


def _of_choices(func: Any, args: _Made, result: torch.Tensor, experts: int) -> Route | None:
    if func in KEEP_CHOICES:
        return Route("choices")
    if not experts:
        return None
    if func is _aten.eq.Scalar and isinstance(args[1], int) and 0 <= args[1] < experts:
        return Route("mask", args[0].numel(), args[1], experts)
    if func in SCATTER:
        return Route("classes", args[2].numel()) if experts in result.shape else None
    if func is _CLASSES and result.numel() == args[0].numel() * experts:
        return Route("classes", args[0].numel())
    return None


def _keep(tensor: torch.Tensor, route: Route | None) -> None:
    if route is not None:
        _say(tensor, route)


def _say(tensor: torch.Tensor, route: Route) -> None:
    tensor.__dict__[_ROUTE] = route
