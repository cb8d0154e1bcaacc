"""Routing without a router's values: which tokens meet which expert, as assumed or as told, in loops over experts.

A loop over experts asks twice for places in the mask of chosen experts [experts, chosen, tokens]: which experts were
chosen at all, and which tokens chose this one. A traced step has no values; every expert is taken to be chosen, and to
get an equal share of the tokens, or the counts that were given.
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

_NONZERO = torch.ops.aten.nonzero.default
#: What a module of experts calls their number.
_NUMBERS = ("num_experts", "n_routed_experts", "num_local_experts", "n_experts", "moe_num_experts", "num_total_experts")

#: Operations whose results routing decides.
ROUTED = frozenset({_NONZERO})


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

    def places(self, mask: torch.Tensor) -> torch.Tensor | None:
        """The places where a mask of experts is true, `None` for any other mask.

        Raises:
            TraceError: the given counts are not those of this layer.
        """
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
        if self._counts is None:
            self.assume(
                f"a loop over {experts} experts: each gets an equal share of the tokens (which ones is data)"
            )
            return tokens // experts + (expert < tokens % experts)
        if len(self._counts) != experts or sum(self._counts) != tokens:
            raise TraceError(
                f"routing tells of {sum(self._counts)} tokens on {len(self._counts)} experts, the layer has {tokens} "
                f"on {experts}",
                module=self._modules.path,
                remedy="Give one count for each expert; they add up to tokens times experts chosen for each",
            )
        self.assume(f"a loop over {experts} experts: tokens by the given counts")
        return self._counts[expert]

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
