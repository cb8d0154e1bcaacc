"""The napkin: days = 6·N·D / (chips · peak · MFU), with any one quantity left open, and money where there is a price.

6·N·D is the training FLOPs of N parameters on D tokens: 2 a parameter and token forward, 4 backward (Kaplan et al.,
arXiv:2001.08361, section 2.1; attention's own FLOPs left out). MFU is the share of the dense peak that becomes model
FLOPs (Chowdhery et al., arXiv:2204.02311, appendix B).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torchledger.planner.budget import Law, optimum
from torchledger.planner.errors import Contradiction, PlanError, Underdetermined
from torchledger.planner.relation import Product, Term, propagate
from torchledger.units import (
    format_count,
    format_flops,
    format_flops_per_s,
    format_money,
    format_number,
    group_digits,
)

#: What a user may leave open, in the order in which an answer names them.
QUANTITIES: tuple[str, ...] = ("params", "tokens", "days", "num_chips", "mfu")

#: Those that a solved value is rounded to whole ones of.
_WHOLE = ("params", "tokens", "num_chips")

_FLOPS_ASSUMPTION = "FLOPs are 6 a parameter and token: 2 forward, 4 backward; attention's own FLOPs are left out"

_SIX_N_D = Product("total_flops", ("params", "tokens"), 6, "6")
_COUNTED = Product("total_flops", ("flops_per_token", "tokens"))
_PRODUCTS: tuple[Product, ...] = (
    Product("cluster_flops_per_s", ("num_chips", "peak_flops_per_s", "mfu")),
    Product("total_flops", ("cluster_flops_per_s", "days"), 86400, "86,400 s"),
    Product("chip_hours", ("num_chips", "days"), 24, "24 h"),
    Product("money", ("chip_hours", "price_per_chip_hour")),
    # a budget alone gives chip-hours, and those give FLOPs, however the hours are spread over chips
    Product("total_flops", ("chip_hours", "peak_flops_per_s", "mfu"), 3600, "3,600 s"),
)


def _show_chips(n: float) -> str:
    return f"{group_digits(round(n))} chip{'' if round(n) == 1 else 's'}"


def _ceil(x: float) -> float:
    """Up to a whole number, at least one, but not because a product of floats ended a last digit above it."""
    return max(1, round(x) if abs(x - round(x)) <= 1e-10 * x else math.ceil(x))


def _floor(x: float) -> float:
    """Down to a whole number, but not because a product of floats ended a last digit below it: 15 digits are meant."""
    return math.floor(float(f"{x:.15g}"))


_TERMS: Mapping[str, Term] = MappingProxyType(
    {
        term.name: term
        for term in (
            Term("params", "parameters", format_count, _floor),
            Term("tokens", "tokens", lambda x: f"{format_count(x)} tokens", _floor),
            Term("days", "time", lambda x: f"{format_number(x)} days"),
            Term("num_chips", "chips", _show_chips, _ceil, ("cluster_flops_per_s", "days")),
            Term("mfu", "MFU", format_number),
            Term("peak_flops_per_s", "peak", format_flops_per_s),
            Term("total_flops", "FLOPs", format_flops),
            Term("flops_per_token", "FLOPs a token", lambda x: f"{format_flops(x)} a token"),
            Term("cluster_flops_per_s", "speed", format_flops_per_s),
            Term("chip_hours", "chip-hours", lambda x: f"{format_count(x)} chip-h"),
            Term("money", "money", format_money),
            Term("price_per_chip_hour", "price", lambda x: f"{format_money(x)}/chip-h"),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Napkin:
    """An answer of the napkin. Amounts in SI base units but for `days` and `chip_hours`; money in `currency`.

    Attributes:
        params: parameters N.
        tokens: tokens D.
        days: wall-clock days, of the whole number of chips where that was solved; `None` where only the product
            chips · days is known (a budget).
        num_chips: chips; `None` likewise.
        mfu: model FLOPs utilisation, a share of the dense peak.
        peak_flops_per_s: dense peak of one chip in the format that the matmuls run in.
        total_flops: 6·N·D, or the model's own FLOPs a token times D.
        chip_hours: chips · hours.
        money: chip-hours times price; `None` without a price.
        price_per_chip_hour: the price; `None` without one.
        currency: of both.
        solved: names of the quantities that were open.
        arithmetic: the steps, one line each.
        assumptions: what was assumed on the way.
    """

    params: int
    tokens: int
    days: float | None
    num_chips: int | None
    mfu: float
    peak_flops_per_s: float
    total_flops: float
    chip_hours: float
    money: float | None
    price_per_chip_hour: float | None
    currency: str
    solved: tuple[str, ...]
    arithmetic: tuple[str, ...]
    assumptions: tuple[str, ...]

    @property
    def is_possible(self) -> bool:
        """Whether it asks no more of the chips than their peak."""
        return self.mfu <= 1


def solve(
    *,
    peak_flops_per_s: float,
    params: float | None = None,
    tokens: float | None = None,
    days: float | None = None,
    num_chips: float | None = None,
    mfu: float | None = None,
    money: float | None = None,
    price_per_chip_hour: float | None = None,
    currency: str = "USD",
    flops_per_token: float | None = None,
    law: Law | None = None,
    assumptions: tuple[str, ...] = (),
) -> Napkin:
    """Solve the napkin for whatever is `None`.

    Args:
        peak_flops_per_s: dense peak of one chip, FLOP/s.
        params: parameters N.
        tokens: training tokens D.
        days: wall-clock days.
        num_chips: chips, solved upwards to a whole number, whose days the answer has.
        mfu: share of the peak, 0 to 1.
        money: the whole bill; needs a price, and may stand in place of another quantity.
        price_per_chip_hour: price of a chip for an hour.
        currency: of money and price.
        flops_per_token: what a model of `params` parameters was counted to cost, in place of 6·N.
        law: ties tokens to parameters as compute-optimal training does: one open quantity more may be left.
        assumptions: what the caller assumed, carried into the answer.

    Raises:
        PlanError: a quantity that is zero, negative, or an MFU that is no share.
        Underdetermined: more open quantities than equations; the message names them.
        Contradiction: everything is given and the two sides differ by more than 1 %.
        NothingFits: what is given is not enough for one parameter, or for one token.

    >>> napkin = solve(params=70e9, tokens=15e12, num_chips=1024, mfu=0.5, peak_flops_per_s=989.4e12)
    >>> round(napkin.days)
    144
    >>> napkin.arithmetic[0]
    'FLOPs = 6 · 70B · 15T tokens = 6.30e24 FLOP'
    """
    amounts = (params, tokens, days, num_chips, mfu, peak_flops_per_s, money, price_per_chip_hour)
    given = dict(zip((*QUANTITIES, "peak_flops_per_s", "money", "price_per_chip_hour"), amounts, strict=True))
    known = {name: value for name, value in given.items() if value is not None}
    _check(known)
    products = _products(known, flops_per_token)
    arithmetic = propagate(products, known, _in_currency(currency))
    if law is not None:
        arithmetic = (*arithmetic, *_follow(law, known), *propagate(products, known, _in_currency(currency)))
    _demand(known, given, law)
    _agree(products, known, given)
    solved = tuple(name for name in (*QUANTITIES, "money") if given[name] is None and name in known)
    told = (() if flops_per_token else (_FLOPS_ASSUMPTION,), () if law is None else (law.text,))
    assumed = (*told, _sooner(known, days), assumptions)
    return _answer(known, currency, solved, arithmetic, tuple(line for lines in assumed for line in lines))


def _sooner(known: Mapping[str, float], days: float | None) -> tuple[str, ...]:
    """Whole chips are done before the days that were given: what the answer's time is then."""
    if days is None or known["days"] == days:
        return ()
    told = f"chips are bought whole: {_show_chips(known['num_chips'])} take {format_number(known['days'], 4)} days"
    return (f"{told} of the {format_number(days, 4)} that are given, and chip-hours are those",)


def _products(known: dict[str, float], flops_per_token: float | None) -> tuple[Product, ...]:
    """The equations: with 6·N for a token, or with what was counted for one, which is put among the known."""
    if flops_per_token is None:
        return (_SIX_N_D, *_PRODUCTS)
    if "params" not in known:
        raise PlanError("FLOPs a token were counted for a model: its parameters are known, and cannot be asked for")
    known["flops_per_token"] = flops_per_token
    return (_COUNTED, *_PRODUCTS)


def _follow(law: Law, known: dict[str, float]) -> tuple[str, ...]:
    """Fill in what the law says of parameters and tokens, and say how.

    Raises:
        PlanError: both are known already.
    """
    if "params" in known and "tokens" in known:
        raise PlanError(
            "params and tokens are both settled: nothing is left for --compute-optimal to choose; leave one of them out"
        )
    name = next((name for name in ("params", "tokens", "total_flops") if name in known), None)
    if name is None:
        return ()
    found = optimum(law, **{"flops" if name == "total_flops" else name: known[name]})
    known.setdefault("params", max(1, _floor(found.params)))
    known.setdefault("tokens", max(1, _floor(found.tokens)))
    if "flops_per_token" not in known:  # a model's own FLOPs a token are not the law's 6·N
        known.setdefault("total_flops", found.flops)
    return found.arithmetic


def _answer(
    known: Mapping[str, float],
    currency: str,
    solved: tuple[str, ...],
    arithmetic: tuple[str, ...],
    assumptions: tuple[str, ...],
) -> Napkin:
    return Napkin(
        params=round(known["params"]),
        tokens=round(known["tokens"]),
        days=known.get("days"),
        num_chips=round(known["num_chips"]) if "num_chips" in known else None,
        mfu=known["mfu"],
        peak_flops_per_s=known["peak_flops_per_s"],
        total_flops=known["total_flops"],
        chip_hours=known["chip_hours"],
        money=known.get("money"),
        price_per_chip_hour=known.get("price_per_chip_hour"),
        currency=currency,
        solved=solved,
        arithmetic=arithmetic,
        assumptions=assumptions,
    )


def _check(known: Mapping[str, float]) -> None:
    for name, value in known.items():
        if not (math.isfinite(value) and value > 0):
            raise PlanError(f"{name} is {value}; it must be a finite number above zero")
    if known.get("mfu", 0) > 1:
        raise PlanError(
            f"mfu is {format_number(known['mfu'])}, but it is a share of the peak between 0 and 1:"
            f" write 0.5 or 50% for half"
        )
    if "money" in known and "price_per_chip_hour" not in known:
        raise Underdetermined("money is given without a price per chip and hour: give the price (--price '$2.80')")


def _demand(known: Mapping[str, float], given: Mapping[str, float | None], law: Law | None) -> None:
    """Raise where the essential quantities are still open. A budget may leave the split into chips and days open."""
    if law is not None and "num_chips" in known and "days" not in known:
        raise Underdetermined(
            "compute-optimal training ties tokens to params; how large is the run? Give params, tokens, days or money"
        )
    budget = "chip_hours" in known and given["money"] is not None
    needed = [name for name in QUANTITIES if not (budget and name in {"num_chips", "days"})]
    missing = [name for name in needed if name not in known]
    if not missing:
        return
    open_names = [name for name in QUANTITIES if given[name] is None]
    raise Underdetermined(
        f"{len(open_names)} quantities are open ({', '.join(open_names)}) and one equation ties params, tokens, days,"
        f" num_chips and mfu: give all but one of them"
        + (" (a budget counts as one)" if given["price_per_chip_hour"] is not None else "")
    )


def _agree(products: tuple[Product, ...], known: Mapping[str, float], given: Mapping[str, float | None]) -> None:
    """Raise where given quantities contradict each other, by more than a solved one was rounded."""
    for product in products:
        if any(name not in known for name in product.names):
            continue
        whole = [name for name in _WHOLE if name in product.names and given[name] is None]
        if any(abs(product.solve(name, known) - known[name]) <= 1 for name in whole):
            continue
        left = known[product.result]
        right = product.solve(product.result, known)
        if abs(left - right) > 0.01 * max(left, right):
            askable = ("days", "num_chips", "mfu", "tokens", "params", "money")
            name = next(name for name in askable if given[name] is not None and name in product.names)
            term = _TERMS[name]
            raise Contradiction(
                f"every quantity is given and they disagree: {term.text} is given as {term.show(known[name])},"
                f" but the others make it {term.show(product.solve(name, known))}; leave one open (--solve {name})"
            )


def _in_currency(currency: str) -> dict[str, Term]:
    terms = dict(_TERMS)
    terms["money"] = Term("money", "money", lambda x: format_money(x, currency))
    terms["price_per_chip_hour"] = Term("price_per_chip_hour", "price", lambda x: f"{format_money(x, currency)}/chip-h")
    return terms
