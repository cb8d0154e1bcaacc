import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.planner import Contradiction, PlanError, Underdetermined, solve
from torchledger.planner.budget import law
from torchledger.planner.errors import NothingFits

H100_DENSE = 989.4e12  # FLOP/s, dense BF16
H100_LECTURE = 1979e12 / 2  # the data sheet's figure with 2:4 sparsity, halved

positive = st.floats(min_value=1e-2, max_value=1e6)


@pytest.mark.parametrize("peak", [H100_DENSE, H100_LECTURE])
def test_llama_on_1024_h100_takes_144_days(peak):
    """70B parameters, 15T tokens, 1,024 H100 at half their peak: 144 days, by either figure for the peak."""
    napkin = solve(params=70e9, tokens=15e12, num_chips=1024, mfu=0.5, peak_flops_per_s=peak)
    assert napkin.days == pytest.approx(6 * 70e9 * 15e12 / (1024 * peak * 0.5) / 86400)
    assert round(napkin.days) == 144
    assert napkin.solved == ("days",)


def test_whole_numbers_come_back_whole():
    """70B and 15T are not 69,999,999,999 and 14,999,999,999,999 because days are a rounded float."""
    whole = {"params": 70e9, "tokens": 15e12, "num_chips": 1024, "mfu": 0.5}
    days = solve(**whole, peak_flops_per_s=H100_DENSE).days
    for name in ("params", "tokens", "num_chips"):
        rest = {other: amount for other, amount in whole.items() if other != name}
        assert getattr(solve(**rest, days=days, peak_flops_per_s=H100_DENSE), name) == whole[name]


@given(params=positive, tokens=positive, days=positive, mfu=st.floats(min_value=0.01, max_value=1))
def test_every_quantity_is_recovered_from_the_others(params, tokens, days, mfu):
    """Leaving any one quantity of an answer open gives it back."""
    params, tokens = params * 1e6, tokens * 1e9
    flops = 6 * params * tokens
    num_chips = max(1, round(flops / (days * 86400 * mfu * 1e12)))
    peak = flops / (num_chips * days * 86400 * mfu)
    whole = {"params": params, "tokens": tokens, "days": days, "num_chips": num_chips, "mfu": mfu}
    for name, value in whole.items():
        rest = {other: amount for other, amount in whole.items() if other != name}
        napkin = solve(**rest, peak_flops_per_s=peak)
        found = getattr(napkin, name)
        rounding = 1 if name in {"params", "tokens", "num_chips"} else 0
        assert found == pytest.approx(value, rel=1e-6, abs=rounding)
        assert name in napkin.solved


def test_chips_are_bought_whole():
    """A solved number of chips is rounded up, because the deadline must hold."""
    napkin = solve(params=70e9, tokens=15e12, days=30, mfu=0.4, peak_flops_per_s=H100_DENSE)
    assert napkin.num_chips == math.ceil(6 * 70e9 * 15e12 / (30 * 86400 * H100_DENSE * 0.4))


@given(
    exact=st.floats(min_value=0.001, max_value=3000),
    params=st.integers(10**8, 10**12),
    days=st.sampled_from((1, 3, 7, 14, 30, 60)),
    mfu=st.sampled_from((0.3, 0.4, 0.5)),
)
def test_whole_chips_are_an_answer_however_far_they_are_rounded(exact, params, days, mfu):
    """Chips rounded up are done sooner: days, speed and chip-hours are theirs, and nothing contradicts another."""
    tokens = round(exact * days * 86400 * H100_DENSE * mfu / (6 * params)) or 1
    napkin = solve(params=params, tokens=tokens, days=days, mfu=mfu, peak_flops_per_s=H100_DENSE)
    flops = 6 * params * tokens
    assert napkin.num_chips == max(1, math.ceil(flops / (days * 86400 * H100_DENSE * mfu) * (1 - 1e-10)))
    assert napkin.days == pytest.approx(flops / (napkin.num_chips * H100_DENSE * mfu * 86400))
    assert napkin.days <= days * (1 + 1e-9)
    assert napkin.chip_hours == pytest.approx(flops / (3600 * H100_DENSE * mfu))
    told = [line for line in napkin.assumptions if "chips are bought whole" in line]
    assert len(told) == (napkin.days != days)


def test_a_budget_of_broken_chips_keeps_its_hours():
    """500 chip-hours in one day are 20.8 chips: 21 of them take 500/(24·21) days, and the bill is what was given."""
    known = {"tokens": 1e12, "days": 1, "money": 1000.0, "price_per_chip_hour": 2.0, "peak_flops_per_s": 1e15}
    napkin = solve(**known, mfu=0.5)
    assert napkin.num_chips == math.ceil(500 / 24) == 21
    assert napkin.days == pytest.approx(500 / (24 * 21))
    assert napkin.chip_hours == 500
    solved = solve(**known, params=500 * 3600 * 1e15 * 0.5 / 6e12)
    assert solved.mfu == pytest.approx(0.5)


def test_a_little_work_takes_one_chip():
    """Less than a chip's work is one chip, not none."""
    napkin = solve(params=70e9, tokens=1, days=30, mfu=0.4, peak_flops_per_s=H100_DENSE)
    assert napkin.num_chips == 1
    assert napkin.days == pytest.approx(6 * 70e9 / (H100_DENSE * 0.4 * 86400))


@pytest.mark.parametrize("given", [{"tokens": 1e30, "days": 1 / 86400}, {"params": 1e12, "days": 1e-9}])
def test_less_than_one_parameter_or_token_does_not_fit(given):
    """8·989.4e12·0.4 FLOP/s for a second are no parameter on 1e30 tokens: what to give is told."""
    with pytest.raises(NothingFits, match="less than one: give more chips"):
        solve(**given, num_chips=8, mfu=0.4, peak_flops_per_s=H100_DENSE)


def test_small_whole_answers_do_not_contradict_themselves():
    """Rounded down, 2 of 2.87 parameters and 57 tokens are an answer, not a contradiction."""
    known = {"days": 1 / 86400, "num_chips": 1, "mfu": 1e-12, "peak_flops_per_s": H100_DENSE}
    napkin = solve(**known, law=law("20-tokens"))
    assert (napkin.params, napkin.tokens) == (int((989.4 / 120) ** 0.5), int(20 * (989.4 / 120) ** 0.5)) == (2, 57)
    assert solve(**known, params=100).tokens == int(989.4 / (6 * 100)) == 1


def test_a_model_s_own_flops_do_not_contradict_a_law():
    """The law's tokens come from 6·N; what they cost is the model's own FLOPs a token times them."""
    known = {"params": 8e9, "num_chips": 512, "mfu": 0.4, "peak_flops_per_s": H100_DENSE}
    napkin = solve(**known, flops_per_token=60e9, law=law("20-tokens"))
    assert napkin.tokens == pytest.approx(20 * 8e9)
    assert napkin.total_flops == pytest.approx(60e9 * 20 * 8e9)


def test_a_price_gives_the_bill():
    """Money is chips · hours · price."""
    napkin = solve(params=8e9, tokens=1e12, days=10, num_chips=1000, peak_flops_per_s=1e15, price_per_chip_hour=2.5)
    assert napkin.money == pytest.approx(1000 * 10 * 24 * 2.5)
    assert napkin.mfu == pytest.approx(6 * 8e9 * 1e12 / (1000 * 10 * 86400 * 1e15))


def test_a_budget_gives_the_largest_model():
    """A budget buys chip-hours; how they are spread over chips and days is left open."""
    napkin = solve(money=1e6, price_per_chip_hour=2.0, tokens=1e12, mfu=0.5, peak_flops_per_s=1e15)
    assert napkin.params == 1e6 / 2.0 * 3600 * 1e15 * 0.5 / (6 * 1e12)
    assert napkin.days is None
    assert napkin.num_chips is None


def test_the_arithmetic_names_every_given_quantity():
    """An answer shows its arithmetic: the given numbers stand in the lines."""
    napkin = solve(params=70e9, tokens=15e12, num_chips=1024, mfu=0.5, peak_flops_per_s=H100_DENSE)
    text = "\n".join(napkin.arithmetic)
    for shown in ("6 · 70B · 15T", "1,024 chips", "989.4 TFLOP/s", "0.5", "144 days"):
        assert shown in text


def test_money_is_shown_in_its_currency():
    """The arithmetic speaks of the currency that was given."""
    napkin = solve(
        params=1e9, tokens=1e12, days=1, num_chips=64, peak_flops_per_s=1e15, price_per_chip_hour=2.0, currency="EUR"
    )
    assert "EUR" in napkin.arithmetic[-1]


def test_open_quantities_are_named():
    """Two open quantities and one equation: the message names both."""
    with pytest.raises(Underdetermined, match=r"2 quantities are open \(days, mfu\)"):
        solve(params=70e9, tokens=15e12, num_chips=1024, peak_flops_per_s=H100_DENSE)


def test_a_contradiction_shows_both_sides():
    """Everything given and not true: the message says what was given and what follows from the rest."""
    with pytest.raises(Contradiction, match=r"100 days.*144 days.*--solve days"):
        solve(params=70e9, tokens=15e12, num_chips=1024, mfu=0.5, days=100, peak_flops_per_s=H100_DENSE)


def test_everything_given_and_true_is_an_answer():
    """Quantities that agree within 1 % are no contradiction."""
    napkin = solve(params=70e9, tokens=15e12, num_chips=1024, mfu=0.5, days=144, peak_flops_per_s=H100_DENSE)
    assert napkin.solved == ()


def test_a_bill_that_contradicts_the_hours_is_found():
    """A budget that is not chips · hours · price is a contradiction too."""
    with pytest.raises(Contradiction, match="money"):
        solve(params=70e9, tokens=15e12, days=100, mfu=0.5, money=1e6, price_per_chip_hour=2.8, peak_flops_per_s=1e15)


def test_a_budget_needs_a_price():
    """Money without a price says nothing, and the message asks for the price."""
    with pytest.raises(Underdetermined, match="price"):
        solve(params=70e9, tokens=15e12, mfu=0.5, money=1e6, peak_flops_per_s=1e15)


@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
def test_impossible_amounts_are_refused(value):
    """Zero, negative, infinite and not-a-number amounts are named."""
    with pytest.raises(PlanError, match="tokens"):
        solve(params=70e9, tokens=value, num_chips=8, mfu=0.5, peak_flops_per_s=1e15)


def test_mfu_is_a_share():
    """50 for 50 % is refused with the way to write it."""
    with pytest.raises(PlanError, match=r"0\.5 or 50%"):
        solve(params=70e9, tokens=15e12, num_chips=8, mfu=50, peak_flops_per_s=1e15)


def test_more_than_the_peak_is_impossible():
    """A deadline that asks for more than the peak is answered, and marked as impossible."""
    napkin = solve(params=70e9, tokens=15e12, num_chips=8, days=10, peak_flops_per_s=1e15)
    assert napkin.mfu > 1
    assert not napkin.is_possible
