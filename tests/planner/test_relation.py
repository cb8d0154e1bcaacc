import pytest

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
    import math

    terms = {**TERMS, "width": Term("width", "width", str, math.ceil)}
    known = {"area": 10, "height": 4}
    assert propagate([AREA], known, terms) == ("width = 10 / 4 = 2.50, so 3",)
    assert known["width"] == 3
