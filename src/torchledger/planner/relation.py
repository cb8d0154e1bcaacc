"""Quantities tied by products, solved one after the other: whoever has a single unknown gives it away.

This is how the napkin answers any of its questions with one piece of code: the same five products, read in whichever
direction has one unknown left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass

from torchledger.planner.errors import NothingFits, PlanError


@dataclass(frozen=True, slots=True)
class Term:
    """A quantity of the napkin.

    Attributes:
        name: its key (`num_chips`).
        text: its name in a sentence (`chips`).
        show: its value as text (`1,024 chips`).
        rounded: what a solved value becomes (whole chips are bought, so they are rounded up).
        settles: quantities that were those of the broken value, and are solved again from the one rounded up (whole
            chips are done sooner).
    """

    name: str
    text: str
    show: Callable[[float], str]
    rounded: Callable[[float], float] = float
    settles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Product:
    """`result = constant · factor · factor ...`.

    Attributes:
        result: name of the product.
        factors: names of the factors.
        constant: the number that stands in front.
        constant_text: how it is written; empty where it is 1.
    """

    result: str
    factors: tuple[str, ...]
    constant: float = 1.0
    constant_text: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All quantities it ties together, the result first."""
        return (self.result, *self.factors)

    def solve(self, name: str, known: Mapping[str, float]) -> float:
        """The value of `name` from the others.

        >>> Product("flops", ("params", "tokens"), 6, "6").solve("tokens", {"flops": 120, "params": 4})
        5.0
        """
        product = self.constant * math.prod(known[factor] for factor in self.factors if factor != name)
        return product if name == self.result else known[self.result] / product

    def explain(self, name: str, known: Mapping[str, float], terms: Mapping[str, Term]) -> str:
        """The arithmetic of `solve` as one line: `FLOPs = 6 · 70B · 15T`."""
        shown = [terms[factor].show(known[factor]) for factor in self.factors if factor != name]
        product = " · ".join([*([self.constant_text] if self.constant_text else []), *shown])
        if name == self.result:
            return f"{terms[name].text} = {product}"
        divisor = f"({product})" if " · " in product else product
        return f"{terms[name].text} = {terms[self.result].show(known[self.result])} / {divisor}"


def propagate(
    products: Iterable[Product], known: MutableMapping[str, float], terms: Mapping[str, Term]
) -> tuple[str, ...]:
    """Fill `known` with everything the products give, and say how, one line a step.

    Products are tried in order, from the first again after each success, so an earlier one is the preferred way.

    Raises:
        NothingFits: a quantity that is whole comes out below one.
        PlanError: a quantity comes out larger or smaller than a float holds.
    """
    products = tuple(products)
    steps: list[str] = []
    while True:
        ready = next(((p, open_) for p in products if len(open_ := _open(p, known)) == 1), None)
        if ready is None:
            return tuple(steps)
        product, (name,) = ready
        term = terms[name]
        explanation = product.explain(name, known, terms)
        exact = _solved(product, name, known, explanation)
        known[name] = term.rounded(exact)
        if known[name] <= 0:
            others = ", ".join(terms[each].text for each in product.factors if each != name)
            raise NothingFits(
                f"{explanation} = {exact:.2g}, less than one: give more chips, more days or more money, or fewer"
                f" {others}"
            )
        if known[name] > exact * (1 + 1e-9):
            for other in term.settles:
                known.pop(other, None)
        up = known[name] - exact > 0.005
        steps.append(f"{explanation} = {f'{exact:,.2f}, so ' if up else ''}{term.show(known[name])}")


def _solved(product: Product, name: str, known: Mapping[str, float], explanation: str) -> float:
    try:
        exact = float(product.solve(name, known))
    except (OverflowError, ZeroDivisionError):
        exact = math.inf
    if not 0 < exact < math.inf:
        raise PlanError(f"{explanation} is too large or too small to compute; give amounts of a run that can be")
    return exact


def _open(product: Product, known: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(name for name in product.names if name not in known)
