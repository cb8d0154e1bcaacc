"""AdamW by torch's fused kernel, and nothing around it that is the same in every step.

`torch.optim.AdamW` looks up each parameter's state anew, sorts all tensors by device and format and asks a dozen
questions of them: of a step of 30 ms on two cores half a millisecond, as long as the kernel itself.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

__all__ = ["FusedAdamW"]


class _Lists(NamedTuple):
    """Some parameters, and what is kept of each of them, in lists as the kernel takes them."""

    parameters: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]
    counts: list[Tensor]


class FusedAdamW(Optimizer):
    """AdamW (Loshchilov and Hutter, arXiv:1711.05101, algorithm 2), bit for bit torch's own with `fused=True`.

    State goes by torch's names (`step`, `exp_avg`, `exp_avg_sq`), is made at a parameter's first gradient, and may be
    replaced between steps as a whole (`optimizer.load_optimizer_state`).

    Args:
        groups: of plain parameters on one device and in one format; each has a `weight_decay`, and may have more.
        learning_rate: of groups without one.
        betas: of both running averages.
        epsilon: what is added to the root.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], *, learning_rate: float, betas: tuple[float, float], epsilon: float
    ) -> None:
        #: What `torch.amp.GradScaler` looks for: it leaves scaling to the kernel.
        self._step_supports_amp_scaling = True
        self._kept: dict[int, tuple[dict[str, Tensor], _Lists]] = {}  # of a group: its first parameter's state, and all
        defaults = {"lr": learning_rate, "betas": betas, "eps": epsilon, "weight_decay": 0.0, "fused": True}
        super().__init__(list(groups), defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # torch overloads it
        """Update every parameter that has a gradient."""
        assert closure is None, "nothing here evaluates the loss again"
        scale, found_inf = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        for number, group in enumerate(self.param_groups):
            gradients = [parameter.grad for parameter in group["params"]]
            if any(gradient is None for gradient in gradients):
                lists = self._lists([parameter for parameter in group["params"] if parameter.grad is not None])
                gradients = [gradient for gradient in gradients if gradient is not None]
            else:
                lists = self._whole(number, group["params"])
            if not gradients:
                continue
            torch._foreach_add_(lists.counts, 1)
            beta1, beta2 = group["betas"]
            torch._fused_adamw_(
                *(lists.parameters, gradients, lists.means, lists.squares, [], lists.counts),
                lr=group["lr"], beta1=beta1, beta2=beta2, weight_decay=group["weight_decay"], eps=group["eps"],
                amsgrad=False, maximize=False, grad_scale=scale, found_inf=found_inf,
            )  # fmt: skip
            if found_inf is not None:  # the kernel left the update out, so it is none of the count
                torch._foreach_sub_(lists.counts, [found_inf] * len(lists.counts))
        return None

    def _whole(self, number: int, parameters: list[Tensor]) -> _Lists:
        """Lists of a whole group, made anew only where its state was replaced."""
        first, lists = self._kept.get(number, (None, None))
        if lists is None or first is not self.state.get(parameters[0]) or len(lists.parameters) != len(parameters):
            lists = self._lists(parameters)
            self._kept[number] = (self.state[parameters[0]], lists)
        return lists

    def _lists(self, parameters: list[Tensor]) -> _Lists:
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        states = [self.state[parameter] for parameter in parameters]
        means, squares, counts = ([state[key] for state in states] for key in ("exp_avg", "exp_avg_sq", "step"))
        return _Lists(parameters, means, squares, counts)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy has tensors of its own."""
        super().__setstate__(state)
        self._kept, self._step_supports_amp_scaling = {}, True
