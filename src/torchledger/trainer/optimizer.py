"""The optimizer of an `OptimizerSpec`, and its state by parameter name."""

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from torchledger.formula.precision import FORMATS
from torchledger.spec import OptimizerSpec
from torchledger.trainer import update_rules
from torchledger.trainer.eight_bit import AdamW8Bit
from torchledger.trainer.fused_adamw import FusedAdamW
from torchledger.trainer.muon import MOMENTUM, Muon, is_orthogonalized
from torchledger.trainer.one_by_one import OneByOne, Rule

__all__ = ["build_optimizer", "first_state", "is_decayed", "load_optimizer_state", "optimizer_state"]


def is_decayed(name: str, parameter: Tensor) -> bool:
    """Whether weight decay acts on a parameter: on matrices, not on norms, biases or embeddings of positions."""
    return parameter.ndim >= 2 and not name.startswith("position_embedding")


def build_optimizer(
    model: nn.Module,
    spec: OptimizerSpec,
    precision: str = "fp32",
    *,
    masters: Mapping[Tensor, Tensor] | None = None,
    scales: Mapping[str, float] | None = None,
) -> Optimizer:
    """An optimizer over the parameters of `model` that take gradients, in groups: decayed and not.

    `implementation` chooses between torch's fused kernel, lists of tensors, and a loop: the same result up to rounding.
    AdamW and SGD are torch's own wherever all tensors of a parameter are in one format (and its fused AdamW the kernel
    alone, `fused_adamw`). Everything else runs one
    parameter at a time: Lion, Muon, Adafactor and 8-bit AdamW, for which torch has no kernel (its Adafactor waits for
    the device and its Muon takes no other parameters beside); what mixes formats; and fused SGD on tensors in shares.

    Args:
        model: whose parameters are moved.
        spec: how.
        precision: `Recipe.precision`; the parameters are stored in its format already.
        masters: parameter -> its FP32 copy, where the precision has one (`narrowing.narrow`).
        scales: parameter's name -> factor of its learning rate, 1 where it is not named.
    """
    formats, own = FORMATS[precision], _rule(spec)
    groups: dict[tuple[bool, float, Rule, Hashable], list[Tensor]] = {}
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    for decays in (True, False):
        for name, p in named:
            if is_decayed(name, p) == decays:
                rule = _adamw(spec) if spec.kind == "muon" and not is_orthogonalized(name, p) else own
                scale = (scales or {}).get(name, 1.0)
                mesh = getattr(p, "device_mesh", None)  # lists take DTensors of one mesh
                groups.setdefault((decays, scale, rule, mesh), []).append(p)
    found = [
        {"params": params, "weight_decay": spec.weight_decay if decays else 0.0, "scale": scale, "rule": rule}
        for (decays, scale, rule, _), params in groups.items()
    ]
    is_mixed = bool(formats.master) or formats.stored != formats.moment
    # DTensor has no rule for `_fused_sgd_`.
    in_shares = any(hasattr(p, "placements") for _, p in named)
    has_none = spec.kind == "sgd" and spec.implementation == "fused" and in_shares
    if spec.kind not in {"adamw", "sgd"} or is_mixed or has_none:
        for group in found:
            group["lr"] = spec.learning_rate
        return OneByOne(found, moment=_DTYPES[formats.moment], masters=masters)
    for group in found:
        del group["rule"]
    fused, foreach = spec.implementation == "fused", spec.implementation == "foreach"
    if spec.kind == "sgd":
        # torch 2.13's fused kernel leaves most of a 16-bit parameter on a CPU as it is, and fills its momentum with
        # what lay there before: https://github.com/pytorch/pytorch/issues/191763
        fused = fused and formats.stored == "fp32"
        return SGD(found, lr=spec.learning_rate, momentum=spec.momentum, fused=fused, foreach=foreach)
    betas = (spec.beta1, spec.beta2)
    if fused and not in_shares and len({(p.device, p.dtype) for _, p in named}) == 1:
        return FusedAdamW(found, learning_rate=spec.learning_rate, betas=betas, epsilon=spec.epsilon)
    return AdamW(found, lr=spec.learning_rate, betas=betas, eps=spec.epsilon, fused=fused, foreach=foreach)


_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def _rule(spec: OptimizerSpec) -> Rule:
    rules: dict[str, Rule] = {
        "adamw": _adamw(spec),
        "sgd": update_rules.Sgd(spec.momentum),
        "lion": update_rules.Lion(spec.beta1, spec.beta2),
        "adafactor": update_rules.Adafactor(),
        "muon": Muon(spec.momentum or MOMENTUM),
        "adamw-8bit": AdamW8Bit(spec.beta1, spec.beta2, spec.epsilon),
    }
    return rules[spec.kind]


def _adamw(spec: OptimizerSpec) -> Rule:
    fused, foreach = spec.implementation == "fused", spec.implementation == "foreach"
    return update_rules.AdamW(spec.beta1, spec.beta2, spec.epsilon, fused, foreach)


def optimizer_state(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's tensors under `<parameter>.<state>`, for instance `head.weight.exp_avg`; no copies."""
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def first_state(optimizer: Optimizer, parameter: Tensor) -> Mapping[str, Tensor]:
    """What the parameter's update rule keeps of it at the first step; nothing where torch keeps its own optimizer's."""
    if not isinstance(optimizer, OneByOne):
        return {}
    rule: Rule = next(group["rule"] for group in optimizer.param_groups if any(p is parameter for p in group["params"]))
    with torch.no_grad():
        return rule.initial_state(parameter, optimizer.moment)


def load_optimizer_state(model: nn.Module, optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_state` gave, in the formats it had.

    `Optimizer.load_state_dict` would convert the state to the parameters' format, which loses bits when they differ.
    """
    parameters = dict(model.named_parameters())
    fused = {id(p): _is_fused(group) for group in optimizer.param_groups for p in group["params"]}
    optimizer.state.clear()
    for path, value in tensors.items():
        name, _, key = path.rpartition(".")
        parameter = parameters[name]
        # torch keeps the step count on the CPU, except for the fused kernel, which reads it on the device.
        device = parameter.device if key != "step" or fused[id(parameter)] else torch.device("cpu")
        optimizer.state[parameter][key] = value.to(device, copy=True)


def _is_fused(group: Mapping[str, Any]) -> bool:
    return bool(group.get("fused") or getattr(group.get("rule"), "fused", False))
