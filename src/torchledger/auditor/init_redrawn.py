"""Other initial values for any module: each matrix drawn by the fan-in that its own use shows."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from torchledger.auditor.errors import AuditError
from torchledger.auditor.init_schemes import GPT2_STD
from torchledger.auditor.init_signals import Signals
from torchledger.auditor.init_uses import Use

SchemeName: TypeAlias = Literal["fan_in", "xavier", "kaiming", "gpt2", "orthogonal"]
SCHEMES: tuple[str, ...] = get_args(SchemeName)

TRUNCATION = 3.0  # in standard deviations of the matrix at hand
_TIED_LOGIT_STD = 0.25  # adds 0.25²/2 = 0.03 nats to the loss at step 0


@torch.no_grad()
def redraw(model: nn.Module, signals: Signals, scheme: str, *, vocab_size: int | None = None, seed: int = 0) -> None:
    """Draw the matrices of a model anew, in place; biases become 0, and norms stay as they are.

    What multiplies is normal, cut at ±3 of its own standard deviation. A head over the vocabulary has 1/fan_in, or
    0.25/sqrt(fan_in) where it is the table as well, so that the loss begins near the logarithm of the vocabulary. Other
    tables stay, unless they are 0. `gpt2` is 0.02 for all of these, over sqrt(n) for the n matrices that write to the
    residual stream.

    Args:
        model: whose parameters they are.
        signals: a step of it: which parameter is read how.
        scheme: one of `SCHEMES`.
        vocab_size: outputs of the head, where there is one.
        seed: of the values.

    Raises:
        AuditError: no such scheme.
    """
    if scheme not in SCHEMES:
        raise AuditError(f"no scheme {scheme!r}: {', '.join(SCHEMES)}")
    generator = torch.Generator().manual_seed(seed)
    uses: dict[str, list[Use]] = {}
    for use in signals.uses:
        uses.setdefault(use.name, []).append(use)
    writes = sum(use.is_residual for use in signals.uses)
    for name, parameter in model.named_parameters():
        if name.rpartition(".")[2].endswith("bias") and parameter.ndim == 1:
            parameter.zero_()
        elif name in uses and parameter.is_floating_point():
            std = _std(parameter, uses[name], scheme, vocab_size, writes)
            if std is not None:
                _draw(parameter, std, uses[name][0], scheme, generator)


def _std(parameter: Tensor, uses: list[Use], scheme: str, vocab_size: int | None, writes: int) -> float | None:
    """Standard deviation before the cut; nothing for what stays."""
    use = next((use for use in uses if use.kind != "embedding"), None)
    if scheme == "gpt2":
        return GPT2_STD / math.sqrt(writes) if use is not None and use.is_residual else GPT2_STD
    if use is None:
        return GPT2_STD if not bool(parameter.any()) else None
    if use.fan_out == vocab_size:
        return _TIED_LOGIT_STD / math.sqrt(use.fan_in) if len(uses) > 1 else 1 / use.fan_in
    variance = {"xavier": 2 / (use.fan_in + use.fan_out), "kaiming": 2 / use.fan_in}.get(scheme, 1 / use.fan_in)
    return math.sqrt(variance)


def _draw(parameter: Tensor, std: float, use: Use, scheme: str, generator: torch.Generator) -> None:
    values = torch.empty(parameter.shape, dtype=torch.float32)
    if scheme == "orthogonal" and use.kind != "embedding" and parameter.ndim == 2:
        nn.init.orthogonal_(values, generator=generator)
    else:
        nn.init.trunc_normal_(values, 0.0, std, -TRUNCATION * std, TRUNCATION * std, generator=generator)
    parameter.copy_(values)
