"""The loss scale of FP16, whose smallest gradients are 0 and whose largest are infinite without one."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer

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

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss times the scale; gradients are then so much larger."""
        return self._scaler.scale(loss)

    def unscale(self, optimizer: Optimizer) -> None:
        """Gradients as they are without it, before they are clipped."""
        self._scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        """Update, unless a gradient was not finite."""
        self._scaler.step(optimizer)

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
