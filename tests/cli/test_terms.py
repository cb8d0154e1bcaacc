import click
import pytest

from torchledger.cli.terms import read_terms
from torchledger.machine import get
from torchledger.planner import PlanError

H100 = get("h100")


def test_nothing_given_is_nothing_known():
    """No price, no carbon, no losses of the user's: every field is open."""
    terms = read_terms({}, H100)
    assert terms.price is None
    assert terms.currency == "USD"
    assert terms.assumptions == ()
    assert terms.run.price_per_chip_hour is None


def test_a_price_of_the_command_line_keeps_its_currency():
    """It is `as given` among the assumptions."""
    terms = read_terms({"price": (2.8, "EUR")}, H100)
    assert (terms.run.price_per_chip_hour, terms.currency) == (2.8, "EUR")
    assert "as given" in terms.assumptions[0]


def test_a_price_of_a_file_is_the_chips_own(tmp_path):
    """A chip without a price is an error that names those with one."""
    path = tmp_path / "p.toml"
    path.write_text('[file]\ndate = "2026-11-30"\nsource = "s"\n[h100]\nprice = 2\n', encoding="utf-8")
    assert read_terms({"prices": path}, H100).run.price_per_chip_hour == 2
    with pytest.raises(PlanError, match="none for B200"):
        read_terms({"prices": path}, get("b200"))


def test_failures_of_the_cluster_are_shared_by_its_chips():
    """One failure in 10 h on 100 chips is 1/1000 a chip-hour; without a number of chips it says nothing."""
    assert read_terms({"failure_every": 36_000.0}, H100, 100).run.failures_per_chip_hour == pytest.approx(1e-3)
    with pytest.raises(click.UsageError, match="--failure-every"):
        read_terms({"failure_every": 36_000.0}, H100)


def test_a_failure_at_every_moment_is_no_time():
    """Nothing between failures is a wrong option, not a division by zero."""
    with pytest.raises(click.UsageError, match="above zero"):
        read_terms({"failure_every": 0.0}, H100, 8)
