"""Compute-optimal training: the parameters and tokens that give the lowest loss for a budget of FLOPs (Chinchilla).

Every law says N = k·C^a with C = 6·N·D. Of a loss E + A/N^α + B/D^β the optimum has (Hoffmann et al., arXiv:2203.15556,
equation 4) a = β/(α + β) and k = (αA/βB)^(1/(α + β)) / 6^a. The laws are data: `data/chinchilla.toml`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from torchledger.planner.errors import NothingFits, PlanError
from torchledger.units import format_count, format_flops, format_number

#: FLOPs of one parameter on one token, forward and backward.
FLOPS_PER_PARAMETER_TOKEN = 6


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss E + A/N^α + B/D^β, in nats a token of its authors' data."""

    E: float
    A: float
    B: float
    alpha: float
    beta: float

    def at(self, params: float, tokens: float) -> float:
        """The loss of N parameters on D tokens.

        >>> round(Loss(1.69, 406.4, 410.7, 0.34, 0.28).at(70e9, 1.4e12), 2)
        1.94
        """
        return float(self.E + self.A / params**self.alpha + self.B / tokens**self.beta)


@dataclass(frozen=True, slots=True)
class Law:
    """How the optimum grows with the budget.

    Attributes:
        name: its key.
        coefficient, exponent: k and a of N = k·C^a.
        what: what it is, in words.
        source: where it stands.
        loss: the loss that it minimises; nothing where the law has none.
    """

    name: str
    coefficient: float
    exponent: float
    what: str
    source: str
    loss: Loss | None = None

    def params(self, flops: float) -> float:
        """The best N for a budget.

        >>> round(law("20-tokens").params(6 * 70e9 * 1.4e12) / 1e9, 6)
        70.0
        """
        return float(self.coefficient * flops**self.exponent)

    def flops(self, params: float) -> float:
        """The budget for which N is best."""
        return float((params / self.coefficient) ** (1 / self.exponent))

    def tokens(self, params: float) -> float:
        """The tokens for which N is best."""
        return self.flops(params) / (FLOPS_PER_PARAMETER_TOKEN * params)

    def params_for(self, tokens: float) -> float:
        """The N for which D is best: C = 6·N·D and N = k·C^a give N = (k·(6·D)^a)^(1/(1 - a))."""
        scale = self.coefficient * (FLOPS_PER_PARAMETER_TOKEN * tokens) ** self.exponent
        return float(scale ** (1 / (1 - self.exponent)))

    @property
    def text(self) -> str:
        """The law as an assumption."""
        return f"compute-optimal by {self.name}: {self.what} ({self.source})"

    @property
    def formula(self) -> str:
        """N over C, written out."""
        return f"params = {format_number(self.coefficient)} · FLOPs^{format_number(self.exponent)}"


@dataclass(frozen=True, slots=True)
class Optimum:
    """A compute-optimal run.

    Attributes:
        law: whose optimum it is.
        params, tokens: N and D.
        flops: 6·N·D.
        loss: the loss that the law predicts; nothing where it has none.
        arithmetic: the steps.
    """

    law: Law
    params: float
    tokens: float
    flops: float
    loss: float | None
    arithmetic: tuple[str, ...]

    @property
    def tokens_per_parameter(self) -> float:
        """D over N."""
        return self.tokens / self.params


def optimum(
    law: Law, *, flops: float | None = None, params: float | None = None, tokens: float | None = None
) -> Optimum:
    r"""The compute-optimal run of a budget, of a model, or of a corpus: exactly one of the three is given.

    Raises:
        PlanError: none or several are given, or one is not above zero.
        NothingFits: it is not enough for one parameter on one token.

    >>> found = optimum(law("20-tokens"), flops=5.76e23)
    >>> round(found.params / 1e9, 1), round(found.tokens / 1e12, 3)
    (69.3, 1.386)
    >>> print(*found.arithmetic, sep="\n")
    params = 0.0913 · FLOPs^0.5 = 0.0913 · (5.76e23 FLOP)^0.5 = 69.3B
    tokens = 5.76e23 FLOP / (6 · 69.3B) = 1.39T
    """
    given = {"flops": flops, "params": params, "tokens": tokens}
    known = {name: value for name, value in given.items() if value is not None}
    if len(known) != 1:
        told = ", ".join(known) or "none"
        raise PlanError(f"a compute-optimal run follows from one of flops, params and tokens; given is {told}")
    ((name, value),) = known.items()
    if not (math.isfinite(value) and value > 0):
        raise PlanError(f"{name} is {value}; it must be a finite number above zero")
    k, a = format_number(law.coefficient), format_number(law.exponent)
    N, C, D = _at(law, name, value)
    if flops is not None:
        how = f"{law.formula} = {k} · ({format_flops(C)})^{a}"
    elif params is not None:
        how = f"FLOPs = (params / {k})^(1/{a}) = {format_flops(C)}"
    else:
        assert tokens is not None
        how = f"params = ({k} · (6 · {format_count(tokens)})^{a})^(1/(1 - {a}))"
    model = format_count(round(N))
    steps = (
        how if params is not None else f"{how} = {model}",
        f"tokens = {format_flops(C)} / (6 · {model}) = {format_count(round(D))}"
        if tokens is None
        else f"FLOPs = 6 · {model} · {format_count(tokens)} = {format_flops(C)}",
    )
    return Optimum(law, N, D, C, None if law.loss is None else law.loss.at(N, D), steps)


def _at(law: Law, name: str, value: float) -> tuple[float, float, float]:
    """Parameters, FLOPs and tokens for one of the three."""
    shown = f"{law.name} for {name} {value:.3g}"
    try:
        N = law.params(value) if name == "flops" else law.params_for(value) if name == "tokens" else value
        C = value if name == "flops" else law.flops(N) if name == "params" else FLOPS_PER_PARAMETER_TOKEN * N * value
    except OverflowError:
        raise PlanError(f"{shown}: the run is too large to compute; give less") from None
    D = C / (FLOPS_PER_PARAMETER_TOKEN * N)
    if not (math.isfinite(C) and math.isfinite(D)):
        raise PlanError(f"{shown}: the run is too large to compute; give less")
    if min(N, D) < 1:
        least = "parameter" if N < 1 else "token"
        raise NothingFits(f"{shown} has {min(N, D):.2g} of a {least} as its optimum: give more {name}")
    return N, C, D


def laws() -> tuple[Law, ...]:
    """Every law, the rule of thumb first."""
    return tuple(_laws().values())


def law(name: str) -> Law:
    """The law of this name.

    Raises:
        PlanError: there is none; lists those that there are.
    """
    try:
        return _laws()[name]
    except KeyError:
        raise PlanError(f"no law is named {name!r}; there are {', '.join(_laws())}") from None


@cache
def _laws() -> Mapping[str, Law]:
    text = resources.files("torchledger.planner").joinpath("data/chinchilla.toml").read_text(encoding="utf-8")
    return {name: _law(name, row) for name, row in tomllib.loads(text).items()}


def _law(name: str, row: Mapping[str, Any]) -> Law:
    what, source = row["what"], row["source"]
    if "tokens_per_parameter" in row:  # C = 6·N·20·N
        return Law(name, (FLOPS_PER_PARAMETER_TOKEN * row["tokens_per_parameter"]) ** -0.5, 0.5, what, source)
    if "through" in row:
        (C0, N0), (C1, N1) = row["through"]
        a = math.log(N1 / N0) / math.log(C1 / C0)
        return Law(name, N0 / C0**a, a, what, source)
    loss = Loss(row["E"], row["A"], row["B"], row["alpha"], row["beta"])
    a = loss.beta / (loss.alpha + loss.beta)
    G = (loss.alpha * loss.A / (loss.beta * loss.B)) ** (1 / (loss.alpha + loss.beta))
    return Law(name, G / FLOPS_PER_PARAMETER_TOKEN**a, a, what, source, loss)
