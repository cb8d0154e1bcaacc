"""`OneByOne`: parameters updated one at a time by a rule, in FP32 whatever they are stored in."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

__all__ = ["MASTER", "OneByOne", "Rule"]

#: Name of the FP32 copy of a parameter among its states.
MASTER = "master"


class Rule(Protocol):
    """How one parameter is updated: arithmetic alone, over FP32 tensors."""

    def initial_state(self, parameter: Tensor, moment: torch.dtype) -> dict[str, Tensor]:
        """What is kept of a parameter between steps, at the first one; running averages are in the format `moment`."""
        ...

    def update(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Tensor], learning_rate: float, decay: float
    ) -> None:
        """Change `parameter` and `state` in place; `decay` is decoupled weight decay, as AdamW has it."""
        ...


class OneByOne(Optimizer):
    """Parameters of any format, updated in FP32 one after the other, so that what is widened is one tensor at a time.

    Each group has a `rule`, a `weight_decay` and an `lr`. With a master copy that copy is updated and then rounded to
    the parameter (Micikevicius et al., arXiv:1710.03740, section 3.1); without one a 16-bit parameter is widened,
    updated and rounded back, and changes of less than half of its last digit are lost.

    Args:
        groups: of parameters.
        moment: format of running averages between steps.
        masters: parameter -> its FP32 copy; empty where there is none.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], *, moment: torch.dtype, masters: Mapping[Tensor, Tensor] | None = None
    ) -> None:
        super().__init__(list(groups), {})
        self.moment = moment
        for parameter, master in (masters or {}).items():
            self.state[parameter][MASTER] = master

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # torch overloads it
        """Update every parameter that has a gradient."""
        assert closure is None, "no rule here evaluates the loss again"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return None

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state, rule = self.state[parameter], group["rule"]
        if not state.keys() - {MASTER}:
            state.update(rule.initial_state(parameter, self.moment))
        assert parameter.grad is not None
        weight = _wide(state.get(MASTER, parameter))
        moments = {key: _wide(value) for key, value in state.items() if key != MASTER}
        rule.update(weight, _wide(parameter.grad), moments, group["lr"], group["weight_decay"])
        for key, value in moments.items():
            if value is not state[key]:
                state[key].copy_(value)
        if weight is not parameter:
            parameter.copy_(weight)


def _wide(tensor: Tensor) -> Tensor:
    """The tensor in FP32 where it is a narrower number; whole numbers as they are."""
    return tensor.float() if tensor.dtype in {torch.bfloat16, torch.float16} else tensor
