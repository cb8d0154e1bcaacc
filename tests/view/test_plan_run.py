from dataclasses import replace

from torchledger.view.plan_run import run_facts


def test_unknown_amounts_name_the_flag(plan):
    """Money without a price is unknown, and the screen says which flag makes it known."""
    facts = dict(run_facts(plan))
    assert facts["money"] == "unknown; --price gives it"
    assert facts["energy"] == "unknown"
    assert "--carbon" in facts["carbon"]


def test_known_amounts_are_shown_in_their_units(plan):
    """Money in its currency, energy in MWh, carbon in tonnes."""
    facts = dict(run_facts(replace(plan, money=2_800.0, energy_j=3.6e9, carbon_kg=500.0), "EUR"))
    assert facts["money"] == "2,800 EUR"
    assert facts["energy"] == "1 MWh"
    assert facts["carbon"] == "0.5 t CO2e"


def test_losses_stand_apart_from_the_steps(plan):
    """Days with the losses, the steps alone beside, and each cause with its share."""
    steps = plan.recipe.num_steps * plan.step_s / 86400
    days = dict(run_facts(plan))["days"]
    assert days == f"{steps / 0.98:.3f}; steps alone {steps:.3f}, 2 % of the days lost: restarts 2 %"


def test_without_tokens_the_run_is_open(plan):
    """No tokens, no totals: one line that says what to give."""
    open_run = replace(plan, recipe=replace(plan.recipe, num_tokens=0))
    assert [name for name, _ in run_facts(open_run)] == ["tokens"]
