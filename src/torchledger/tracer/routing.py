"""Routing without a router's values: which tokens meet which expert, as assumed or as told, in loops over experts.

A loop over experts asks for places in the mask of chosen experts [experts, chosen, tokens]: which experts were chosen
at all, and which tokens chose this one; or for the number of tokens that each expert has. A traced step has no values;
every expert is taken to be chosen, and to get an equal share of the tokens, or the counts that were given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._mode_utils import no_dispatch

from torchledger.tracer.errors import TraceError
from torchledger.tracer.modules import ModuleStack
from torchledger.tracer.routes import ADD_UP, CHOOSE, HISTOGRAM, SCATTER, SUM_UP, Route, follow, route_of
from torchledger.tracer.values import know

_NONZERO = torch.ops.aten.nonzero.default
_BINCOUNT = torch.ops.aten.bincount.default
#: What a module of experts calls their number.
_NUMBERS = (
    "num_experts", "n_routed_experts", "num_local_experts", "n_experts", "moe_num_experts", "num_total_experts",
    "num_routed_experts", "num_moe_experts", "n_expert",
)  # fmt: skip

#: Operations whose results routing decides.
ROUTED = frozenset({_NONZERO, _BINCOUNT})


class Routing:
    """What a router would have decided.

    Args:
        modules: the running modules.
        mode: the fake tensor mode that results are made on.
        counts: tokens that each expert of a layer gets; nothing shares them out evenly.
        assume: told what was assumed.

    Attributes:
        assume: told what was assumed.
    """

    def __init__(
        self,
        modules: ModuleStack,
        mode: FakeTensorMode | None,
        counts: Sequence[int] | None,
        assume: Callable[[str], None],
    ) -> None:
        self.assume = assume
        self._modules = modules
        self._mode = mode
        self._counts = counts

    def result(self, func: Any, args: tuple[Any, ...]) -> torch.Tensor | None:
        """What an operation of `ROUTED` returns, `None` where routing does not tell.

        Raises:
            TraceError: the given counts are not those of this layer.
        """
        return self.places(args[0]) if func is _NONZERO else self._bincount(*args)

    def follow(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        """An operation of `FOLLOWED` has run: what it says of routing is remembered, and what numbers it must hold."""
        if not args:
            return
        route = route_of(args[2]) if func in SCATTER else route_of(args[0])
        if route is None and func not in CHOOSE:
            return
        experts = self._num_experts() or (route.experts if route is not None else 0)
        follow(func, args, result, experts)
        if route is None or self._mode is None or not experts:
            return
        if func in SUM_UP and route.says == "mask":
            count = self._told(route, experts)
            if count is not None:
                self._know(result, count, experts)
        elif (func is HISTOGRAM and route.says == "choices") or (func in ADD_UP and route.says == "classes"):
            total = args[0].numel() if route.says == "choices" else route.num_choices
            if result.shape == (experts,) and (counts := self._every_count(experts, total)):
                self._know(result, counts, experts)

    def places(self, mask: torch.Tensor) -> torch.Tensor | None:
        """The places where a mask of experts is true, `None` for any other mask.

        Raises:
            TraceError: the given counts are not those of this layer.
        """
        route = route_of(mask)
        if self._mode is not None and route is not None and route.says == "mask":
            share = self._share(route.expert, route.experts, route.num_choices)
            return torch.empty((min(share, mask.numel()), mask.dim()), dtype=torch.int64)
        experts = self._num_experts()
        if self._mode is None or not experts or mask.dtype.is_floating_point:
            return None
        # One class more than there are experts is for tokens that other ranks' experts get: none here.
        if mask.dim() == 1 and mask.shape[0] in {experts, experts + 1}:
            with no_dispatch():  # real numbers: the loop asks for each
                every = torch.arange(experts)[:, None].clone()
            return self._mode.fake_tensor_converter.from_real_tensor(self._mode, every, make_constant=True)
        whole = mask.untyped_storage().nbytes() // mask.dtype.itemsize
        classes = whole // max(mask.numel(), 1)
        if whole != mask.numel() * classes or classes not in {experts, experts + 1}:
            return None
        offset = int(mask.storage_offset())
        expert = offset // mask.numel() if mask.is_contiguous() else offset % classes
        return torch.empty((self._share(expert, experts, mask.numel()), mask.dim()), dtype=torch.int64)

    def _share(self, expert: int, experts: int, tokens: int) -> int:
        counts = self._every_count(experts, tokens)
        if counts is None:
            assert self._counts is not None, "without given counts every layer has its own"
            raise TraceError(
                f"routing tells of {sum(self._counts)} tokens on {len(self._counts)} experts, the layer has {tokens} "
                f"on {experts}",
                module=self._modules.path,
                remedy="Give one count for each expert; they add up to tokens times experts chosen for each",
            )
        self.assume(self._assumption(experts))
        return counts[expert]

    def _bincount(self, choices: torch.Tensor, weights: Any = None, minlength: int = 0) -> torch.Tensor | None:
        """Tokens of each expert, `None` where it is not experts that are counted."""
        experts, route = self._num_experts(), route_of(choices)
        if self._mode is None or not experts or weights is not None or route is None or route.says != "choices":
            return None
        counts = self._every_count(experts, choices.numel())
        if minlength > experts or counts is None:
            return None
        made = torch.empty(experts, dtype=torch.int64)
        self._know(made, counts, experts)
        return made

    def _know(self, fake: torch.Tensor, numbers: int | list[int], experts: int) -> None:
        with no_dispatch():
            value = torch.tensor(numbers).to(fake.dtype)
        know(fake, value, lambda: self.assume(self._assumption(experts)))

    def _told(self, route: Route, experts: int) -> int | None:
        counts = self._every_count(experts, route.num_choices)
        return None if counts is None else counts[route.expert]

    def _every_count(self, experts: int, choices: int) -> list[int] | None:
        """Choices of each expert; `None` where other counts were given, which are those of other layers."""
        if self._counts is None:
            return [choices // experts + (expert < choices % experts) for expert in range(experts)]
        return list(self._counts) if len(self._counts) == experts and sum(self._counts) == choices else None

    def _assumption(self, experts: int) -> str:
        if self._counts is None:
            return f"a loop over {experts} experts: each gets an equal share of the tokens (which ones is data)"
        return f"a loop over {experts} experts: tokens by the given counts"

    def _num_experts(self) -> int:
        """How many experts the innermost running module of experts has, 0 outside of any."""
        for module in self._modules.running:
            for name in _NUMBERS:
                number: Any = getattr(module, name, None)
                if isinstance(number, int) and number > 1:
                    return number
            experts = getattr(module, "experts", None)
            if isinstance(experts, nn.ModuleList) and len(experts) > 1:
                return len(experts)
        return 0
