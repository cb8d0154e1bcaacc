import math

import pytest

from torchledger.planner.errors import NothingFits, PlanError
from torchledger.planner.relation import Product, Term, propagate

TERMS = {name: Term(name, name, "{:g}".format) for name in ("area", "width", "height", "volume", "depth")}
AREA = Product("area", ("width", "height"))
VOLUME = Product("volume", ("area", "depth"), 2, "2")


@pytest.mark.parametrize(
    ("open_name", "known"),
    [("area", {"width": 3, "height": 4}), ("width", {"area": 12, "height": 4}), ("height", {"area": 12, "width": 3})],
)
def test_any_single_unknown_is_solved(open_name, known):
    """Whichever quantity of a product is open, the others give it."""
    assert AREA.solve(open_name, known) == {"area": 12, "width": 3, "height": 4}[open_name]


def test_solutions_travel_from_one_product_to_the_next():
    """A solved quantity may be the last one that another product needed."""
    known = {"width": 3, "height": 4, "depth": 5}
    steps = propagate([AREA, VOLUME], known, TERMS)
    assert known["volume"] == 2 * (3 * 4) * 5
    assert steps == ("area = 3 · 4 = 12", "volume = 2 · 12 · 5 = 120")


def test_two_unknowns_stay_unknown():
    """A product with two open quantities gives nothing away."""
    known = {"width": 3.0}
    assert propagate([AREA, VOLUME], known, TERMS) == ()
    assert known == {"width": 3.0}


def test_a_rounded_quantity_says_so():
    """Where a solved value is rounded up, the step shows both values."""
    terms = {**TERMS, "width": Term("width", "width", str, math.ceil)}
    known = {"area": 10, "height": 4}
    assert propagate([AREA], known, terms) == ("width = 10 / 4 = 2.50, so 3",)
    assert known["width"] == 3


def test_what_a_rounded_quantity_settles_is_solved_again():
    """12 over a width rounded up to 5 is a height of 2.4: the height that was given was that of the broken width."""
    terms = {**TERMS, "width": Term("width", "width", str, math.ceil, ("height",))}
    known = {"area": 12.0, "height": 2.5}
    propagate([AREA], known, terms)
    assert known == {"area": 12.0, "width": math.ceil(12 / 2.5), "height": 12 / 5}


def test_less_than_one_is_told_with_a_remedy():
    """A whole quantity that comes out below one does not fit."""
    terms = {**TERMS, "width": Term("width", "width", str, math.floor)}
    with pytest.raises(NothingFits, match=r"width = 1 / 4 = 0.25, less than one: give more .*fewer height"):
        propagate([AREA], {"area": 1, "height": 4}, terms)


@pytest.mark.parametrize("known", [{"area": 1e300, "height": 1e-300}, {"width": 10**200, "height": 10**200}])
def test_what_no_float_holds_is_told(known):
    """Neither infinity nor a division by zero comes out, but the step that is too large."""
    with pytest.raises(PlanError, match="too large or too small to compute"):
        propagate([AREA], dict(known), TERMS)
