"""Quantities tied by products, solved one after the other: whoever has a single unknown gives it away.

This is how the napkin answers any of its questions with one piece of code: the same five products, read in whichever
direction has one unknown left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """A quantity of the napkin.

    Attributes:
        name: its key (`num_chips`).
        text: its name in a sentence (`chips`).
        show: its value as text (`1,024 chips`).
        rounded: what a solved value becomes (whole chips are bought, so they are rounded up).
    """

    name: str
    text: str
    show: Callable[[float], str]
    rounded: Callable[[float], float] = float


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
    """
    products = tuple(products)
    steps: list[str] = []
    while True:
        ready = next(((p, open_) for p in products if len(open_ := _open(p, known)) == 1), None)
        if ready is None:
            return tuple(steps)
        product, (name,) = ready
        term = terms[name]
        exact = product.solve(name, known)
        explanation = product.explain(name, known, terms)
        known[name] = term.rounded(exact)
        up = known[name] - exact > 0.005
        steps.append(f"{explanation} = {f'{exact:,.2f}, so ' if up else ''}{term.show(known[name])}")


def _open(product: Product, known: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(name for name in product.names if name not in known)
