"""Each matrix of a model: what it begins with, how it is used, and which scheme it follows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchledger.auditor.init_schemes import Match, Scheme, match, matches, schemes, shapes, truncated_share
from torchledger.auditor.init_signals import Signals
from torchledger.auditor.init_uses import Use
from torchledger.auditor.init_weights import Values, values_of

_LOOKED_AT = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_CUT = 3.0  # where our trainer cuts


@dataclass(frozen=True, slots=True)
class Matrix:
    """A parameter of two axes or more.

    Attributes:
        name: its own.
        shape: as stored.
        use: what reads it, a matmul before a look-up where it does both; nothing where it is in neither.
        values: what it begins with.
        found: schemes held against it, the nearest first; none for what is no matmul, convolution or table.
        promised: the scheme that the model says it has, held against it; nothing where none is said.
        gradient_rms: root mean square of its gradient; nothing where it got none.
        is_table: whether it is looked up in, whatever else it does.
    """

    name: str
    shape: tuple[int, ...]
    use: Use | None
    values: Values
    found: tuple[Match, ...]
    promised: Match | None
    gradient_rms: float | None
    is_table: bool = False

    @property
    def role(self) -> str:
        """Its name with a star for each number: what layers share."""
        return role(self.name)

    @property
    def multiplies(self) -> bool:
        """Whether it is more than a table to look up in."""
        return self.use is not None and self.use.kind != "embedding"

    @property
    def gain(self) -> float | None:
        """How many times larger an independent input becomes: std·sqrt(fan_in). Nothing where nothing is summed."""
        if self.use is None or self.use.kind == "embedding":
            return None
        return float(self.values.sample.std * self.use.fan_in**0.5)

    @property
    def measured_gain(self) -> float | None:
        """How many times larger what came out was than what went in."""
        use = self.use
        if use is None or use.reads is None or use.writes is None or not use.reads.rms:
            return None
        return use.writes.rms / use.reads.rms

    @property
    def scheme(self) -> str | None:
        """What it follows: the promised scheme where the sample can come from it, else the nearest that it can."""
        if self.values.is_zero:
            return "zero"
        if self.values.is_orthogonal:
            return "orthogonal"
        if self.promised is not None and self.promised.holds:
            return self.promised.scheme.name
        names = [each.scheme.name for each in self.found if each.holds]
        return " = ".join(names[:2]) if names else None


def role(name: str) -> str:
    """A name with a star for each number.

    >>> role("layers.3.mlp.up1.weight")
    'layers.*.mlp.up1.weight'
    """
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", name)


def matrices(
    model: nn.Module, signals: Signals, promised: Mapping[str, float] | None, scheme_name: str, declared: float | None
) -> Iterator[Matrix]:
    """Every parameter of two axes or more, tied ones once.

    Args:
        model: its parameters.
        signals: a step of it.
        promised: standard deviation of each parameter by the scheme the model says it has, before truncation.
        scheme_name: that scheme.
        declared: standard deviation that the model's configuration names.
    """
    uses: dict[str, Use] = {}
    for use in signals.uses:
        known = uses.get(use.name)
        if known is None or (known.kind == "embedding" and use.kind != "embedding"):
            uses[use.name] = use
    writes = sum(use.is_residual for use in uses.values())
    tables = {use.name for use in signals.uses if use.kind == "embedding"}
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2 or parameter.dtype not in _LOOKED_AT or not parameter.numel():
            continue
        own = uses.get(name)
        values = values_of(as_matrix(parameter, own))
        found: tuple[Match, ...] = ()
        if own is not None and not values.is_zero and values.is_finite:
            residual = writes if own.is_residual else 0
            found = matches(values.sample, schemes(own.fan_in, own.fan_out, writes=residual, declared=declared))
        gradient = signals.gradients.get(name)
        yield Matrix(
            name=name,
            shape=tuple(parameter.shape),
            use=own,
            values=values,
            found=found,
            promised=_promised(values, (promised or {}).get(name), scheme_name),
            gradient_rms=None if gradient is None else gradient.rms,
            is_table=name in tables,
        )


def as_matrix(tensor: Tensor, use: Use | None) -> Tensor:
    """A parameter, or its gradient, as [outputs, inputs]; a stack of matrices, or kernels, one below the other."""
    tensor = tensor.detach()
    tensor = getattr(tensor, "_local_tensor", tensor)
    if use is not None and use.kind == "convolution":
        return (tensor.transpose(0, 1) if use.out_axis else tensor).flatten(1)
    if use is not None and use.kind == "matmul" and use.out_axis == 1:
        tensor = tensor.transpose(-1, -2)
    return tensor.reshape(-1, tensor.shape[-1])


def _promised(values: Values, std: float | None, name: str) -> Match | None:
    if std is None:
        return None
    scheme = Scheme(name, f"{std:.4g}", std)
    if std == 0 or values.is_zero:
        return Match(scheme, std, 0.0 if std == 0 and values.is_zero else float("inf"))
    cuts = {"cut at 3": truncated_share(_CUT), "cut at 2": truncated_share(2)}
    stds = {std * cuts.get(shape, 1.0) for shape in shapes(values.sample)}
    return min((match(values.sample, scheme, each) for each in stds), key=lambda m: abs(m.errors))
