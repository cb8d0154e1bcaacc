"""The optimizer of an `OptimizerSpec`, and its state by parameter name."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from torchledger.spec import OptimizerSpec

__all__ = ["build_optimizer", "is_decayed", "load_optimizer_state", "optimizer_state"]


def is_decayed(name: str, parameter: Tensor) -> bool:
    """Whether weight decay acts on a parameter: on matrices, not on norms, biases or embeddings of positions."""
    return parameter.ndim >= 2 and not name.startswith("position_embedding")


def build_optimizer(model: nn.Module, spec: OptimizerSpec) -> Optimizer:
    """An optimizer of torch's over the parameters of `model` that take gradients, in two groups: decayed and not.

    `implementation` chooses between torch's fused kernel, lists of tensors, and a loop: the same result up to rounding.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    decayed = [p for name, p in named if is_decayed(name, p)]
    plain = [p for name, p in named if not is_decayed(name, p)]
    groups = [
        {"params": parameters, "weight_decay": decay}
        for parameters, decay in ((decayed, spec.weight_decay), (plain, 0.0))
        if parameters
    ]
    fused, foreach = spec.implementation == "fused", spec.implementation == "foreach"
    if spec.kind == "sgd":
        return SGD(groups, lr=spec.learning_rate, momentum=spec.momentum, fused=fused, foreach=foreach)
    betas = (spec.beta1, spec.beta2)
    return AdamW(groups, lr=spec.learning_rate, betas=betas, eps=spec.epsilon, fused=fused, foreach=foreach)


def optimizer_state(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's tensors under `<parameter>.<state>`, for instance `head.weight.exp_avg`; no copies."""
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def load_optimizer_state(model: nn.Module, optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_state` gave, in the formats it had.

    `Optimizer.load_state_dict` would convert the state to the parameters' format, which loses bits when they differ.
    """
    parameters = dict(model.named_parameters())
    fused = {id(p): bool(group.get("fused")) for group in optimizer.param_groups for p in group["params"]}
    optimizer.state.clear()
    for path, value in tensors.items():
        name, _, key = path.rpartition(".")
        parameter = parameters[name]
        # torch keeps the step count on the CPU, except for the fused kernel, which reads it on the device.
        device = parameter.device if key != "step" or fused[id(parameter)] else torch.device("cpu")
        optimizer.state[parameter][key] = value.to(device, copy=True)
