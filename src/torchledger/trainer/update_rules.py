"""Update rules of one parameter: AdamW, SGD, Lion and Adafactor, as their papers state them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from torchledger.trainer.in_shares import Shares, mine

__all__ = ["Adafactor", "AdamW", "Lion", "Sgd"]


@dataclass(frozen=True, slots=True)
class AdamW:
    """AdamW (Loshchilov and Hutter, arXiv:1711.05101, algorithm 2), by torch's own kernels."""

    beta1: float
    beta2: float
    epsilon: float
    fused: bool
    foreach: bool

    def initial_state(self, parameter: Tensor, moment: torch.dtype) -> dict[str, Tensor]:
        """Two running averages, and the number of updates in FP32, on the device where the fused kernel reads it."""
        device = parameter.device if self.fused else torch.device("cpu")
        return {
            "step": torch.zeros((), dtype=torch.float32, device=device),
            "exp_avg": torch.zeros_like(parameter, dtype=moment),
            "exp_avg_sq": torch.zeros_like(parameter, dtype=moment),
        }

    def update(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Tensor], learning_rate: float, decay: float
    ) -> None:
        """In order m ← m + (1 - β1)(g - m), v ← β2·v + (1 - β2)·g², p ← p·(1 - lr·wd) - lr·m̂/(√v̂ + ε)."""
        adamw(
            [parameter],
            [gradient],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            foreach=self.foreach,
            fused=self.fused,
            amsgrad=False,
            beta1=self.beta1,
            beta2=self.beta2,
            lr=learning_rate,
            weight_decay=decay,
            eps=self.epsilon,
            maximize=False,
        )


@dataclass(frozen=True, slots=True)
class Sgd:
    """SGD with momentum (Sutskever et al., ICML 2013, in torch's form), decay added to the gradient."""

    momentum: float

    def initial_state(self, parameter: Tensor, moment: torch.dtype) -> dict[str, Tensor]:
        """The running sum of gradients, where there is momentum."""
        return {"momentum_buffer": torch.zeros_like(parameter, dtype=moment)} if self.momentum else {}

    def update(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Tensor], learning_rate: float, decay: float
    ) -> None:
        """In order b ← μ·b + g + wd·p, p ← p - lr·b."""
        if decay:
            gradient = gradient.add(parameter, alpha=decay)
        if self.momentum:
            gradient = state["momentum_buffer"].mul_(self.momentum).add_(gradient)
        parameter.add_(gradient, alpha=-learning_rate)


@dataclass(frozen=True, slots=True)
class Lion:
    """Lion (Chen et al., arXiv:2302.06675, algorithm 2): every element moves by the learning rate, up or down."""

    beta1: float
    beta2: float

    def initial_state(self, parameter: Tensor, moment: torch.dtype) -> dict[str, Tensor]:
        """One running average."""
        return {"exp_avg": torch.zeros_like(parameter, dtype=moment)}

    def update(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Tensor], learning_rate: float, decay: float
    ) -> None:
        """In order u = sign(β1·m + (1 - β1)·g), p ← p·(1 - lr·wd) - lr·u, m ← β2·m + (1 - β2)·g."""
        mean = state["exp_avg"]
        if decay:
            parameter.mul_(1 - learning_rate * decay)
        direction = torch.lerp(mean, gradient, 1 - self.beta1).sign_()
        parameter.add_(direction, alpha=-learning_rate)
        mean.lerp_(gradient, 1 - self.beta2)


@dataclass(frozen=True, slots=True)
class Adafactor:
    """Adafactor (Shazeer and Stern, arXiv:1804.04235, algorithms 4 and 5), with decoupled decay, as torch states it.

    torch's own reads three norms from the device for every parameter, which makes a step wait and cannot be traced on
    tensors without values; here they stay tensors.

    Attributes:
        decay_power: ĉ: an average of step t keeps 1 - t^ĉ of what it was (section 7.2).
        epsilon2: least scale of a parameter.
        clipping: largest root mean square of an update, d.
        epsilon1: added under the root, squared.
    """

    decay_power: float = -0.8
    epsilon2: float = 1e-3
    clipping: float = 1.0
    epsilon1: float = torch.finfo(torch.float32).eps

    def initial_state(self, parameter: Tensor, moment: torch.dtype) -> dict[str, Tensor]:  # noqa: ARG002  # FP32 always
        """Mean squares of rows [out, 1] and columns [1, in] of a matrix, of a vector of each element; the step."""
        state = {"step": torch.zeros((), dtype=torch.float32)}
        shape, device = parameter.shape, parameter.device
        shapes = {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, *shape[-1:])}
        if parameter.ndim < 2:
            shapes = {"variance": (*shape,)}
        shares = Shares.of(parameter)
        for name, size in shapes.items():
            if shares is None:
                state[name] = torch.zeros(size, dtype=torch.float32, device=device)
            else:
                state[name] = shares.beside(size, torch.float32)
        return state

    def update(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Tensor], learning_rate: float, decay: float
    ) -> None:
        """In order p ← p·(1 - lr·wd) - α·u/max(1, rms(u)/d) with u = g/√v̂, α = max(ε2, rms(p))·min(lr, 1/√t)."""
        step = state["step"]
        step += 1
        number = step.item()  # on the CPU, and known on fake tensors too
        rate, new_share = min(learning_rate, 1 / math.sqrt(number)), number**self.decay_power
        shares = Shares.of(parameter)
        if shares is not None:
            parameter, gradient = mine(parameter), mine(gradient)
            state = {name: mine(value) for name, value in state.items()}
        if shares is None:
            scale = _root_mean_square(parameter)
            variance = self._variance(gradient, state, new_share)
        else:
            scale, variance = self._over_ranks(parameter, gradient, state, new_share, shares)
        scale = scale.clamp_(min=self.epsilon2).mul_(rate)
        if decay:
            parameter.mul_(1 - learning_rate * decay)
        change = variance.clamp_(min=self.epsilon1**2).rsqrt_().mul_(gradient)
        scale /= (_root_mean_square(change, shares) / self.clipping).clamp_(min=1.0)
        parameter.sub_(change.mul_(scale))

    def _variance(self, gradient: Tensor, state: Mapping[str, Tensor], new_share: float) -> Tensor:
        """Mean of squares of each element, of a matrix the product of its rows' and columns' (equation 6)."""
        if gradient.ndim < 2:
            return state["variance"].lerp_(gradient * gradient, new_share).clone()
        rows, columns = state["row_var"], state["col_var"]
        for means, dim in ((rows, -1), (columns, -2)):
            norms: Tensor = torch.linalg.vector_norm(gradient, dim=dim, keepdim=True)
            means.lerp_(norms.square_() / gradient.shape[dim], new_share)
        estimate: Tensor = rows * columns
        return estimate.div_(rows.mean(dim=-2, keepdim=True).clamp_(min=self.epsilon1))

    def _over_ranks(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Tensor], new_share: float, shares: Shares
    ) -> tuple[Tensor, Tensor]:
        """Root mean square of the parameter and `_variance`, of tensors of which this rank has a part.

        Whoever splits the rows adds up the squares of columns, of the parameter and the rows' mean in one message.
        """
        size, squares = math.prod(shares.shape), _square(parameter)
        if gradient.ndim < 2:
            (squares,) = shares.added([squares], [0])
            return (squares / size).sqrt_(), self._variance(gradient, state, new_share)
        (num_rows, num_columns), rows, columns = shares.shape, state["row_var"], state["col_var"]
        own, squares = shares.added([_square(gradient, -1), squares], [1])
        rows.lerp_(own / num_columns, new_share)
        own, squares, total = shares.added([_square(gradient, -2), squares, rows.sum()], [0])
        columns.lerp_(own / num_rows, new_share)
        estimate: Tensor = rows * columns
        return (squares / size).sqrt_(), estimate.div_((total / num_rows).clamp(min=self.epsilon1))


def _root_mean_square(tensor: Tensor, shares: Shares | None = None) -> Tensor:
    if shares is None:
        norm: Tensor = torch.linalg.vector_norm(tensor)
        return norm / math.sqrt(tensor.numel())
    (squares,) = shares.added([_square(tensor)], range(len(shares.shape)))
    return (squares / math.prod(shares.shape)).sqrt_()


def _square(tensor: Tensor, dim: int | None = None) -> Tensor:
    """Sum of squares of all elements, or along one dimension, which stays as one of size 1."""
    norm: Tensor = torch.linalg.vector_norm(tensor, dim=dim, keepdim=dim is not None)
    return norm.square_()
