"""The loss scale of FP16, whose smallest gradients are 0 and whose largest are infinite without one."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchledger.trainer.in_shares import mine

__all__ = ["LossScale"]


class LossScale:
    """torch's gradient scaler: doubled every 2,000 steps, halved where a gradient is not finite, which is left out.

    Source: Micikevicius et al., arXiv:1710.03740, section 3.2, in the form of `torch.amp.GradScaler`. It begins at
    65,536, so that a run's first steps are often left out: no mistake, but the way in which it finds its scale.

    Args:
        device: where the model is.
    """

    def __init__(self, device: torch.device) -> None:
        self._scaler = torch.amp.GradScaler(device.type)
        self._own: _Own | None = None

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss times the scale; gradients are then so much larger."""
        return self._scaler.scale(loss)

    def unscale(self, optimizer: Optimizer, tell: Callable[[Tensor], None] | None = None) -> None:
        """Gradients as they are without it, before they are clipped.

        Args:
            optimizer: whose parameters have them.
            tell: makes a number, 1 where a gradient is not finite, the largest of all ranks that have shares of the
                gradients, in place, so that all leave the update out or none; nothing where there are no others. (torch
                does so by how the first of all gradients is split, and those behind may be split otherwise.)
        """
        if tell is None:
            self._scaler.unscale_(optimizer)
            return
        self._own = _Own(optimizer)
        self._scaler.unscale_(self._own)  # type: ignore[arg-type]  # it reads `param_groups` alone
        for found in self._scaler._found_inf_per_device(self._own).values():  # type: ignore[arg-type]  # noqa: SLF001  # there is no other way
            tell(found)

    def step(self, optimizer: Optimizer) -> None:
        """Update, unless a gradient was not finite."""
        own, self._own = self._own, None
        self._scaler.step(optimizer if own is None else own)  # type: ignore[arg-type]  # it calls `step` alone

    def adapt(self) -> None:
        """The scale of the next step."""
        self._scaler.update()

    def state(self) -> dict[str, Tensor]:
        """What the next step depends on."""
        state = self._scaler.state_dict()
        return {
            "loss_scale": torch.tensor(state["scale"], dtype=torch.float64),
            "loss_scale_age": torch.tensor(state["_growth_tracker"], dtype=torch.int64),
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        own = self._scaler.state_dict()
        scale, age = state["loss_scale"].item(), int(state["loss_scale_age"].item())
        self._scaler.load_state_dict({**own, "scale": scale, "_growth_tracker": age})


class _Own:
    """An optimizer whose tensors are those that this rank has of its parameters and gradients.

    Attributes:
        param_groups: of plain tensors.
        step: the optimizer's.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        own = [_local(p) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.param_groups = [{"params": own}]
        self.step = optimizer.step


@torch.no_grad()
def _local(parameter: Tensor) -> Tensor:
    """A tensor with this rank's part of the gradient as its own."""
    assert parameter.grad is not None
    gradient = mine(parameter.grad)
    own = mine(parameter).detach()
    own.grad = gradient
    return own
