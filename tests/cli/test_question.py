import pytest

from torchledger.cli.question import kind_of_question

NOTHING = dict.fromkeys(
    (
        "audit_mfu",
        "solve",
        "params",
        "tokens",
        "days",
        "num_chips",
        "mfu",
        "money",
        "napkin",
        "compute_optimal",
        "cluster",
    ),
)


@pytest.mark.parametrize(
    ("model", "given", "kind"),
    [
        (None, {"params": 7e9, "tokens": 1e12, "cluster": "h100x8"}, "napkin"),
        (None, {"solve": "params", "cluster": "h100x8"}, "napkin"),
        (None, {"compute_optimal": True, "cluster": "h100x8"}, "napkin"),
        (None, {"compute_optimal": True}, "optimum"),
        (None, {"config_file": "plan.toml"}, "layout"),
        ("gpt2", {"cluster": "h100x8"}, "layout"),
        ("gpt2", {"cluster": "h100x8", "tokens": 1e12}, "layout"),
        ("gpt2", {"cluster": "h100x8", "mfu": 0.4}, "napkin"),
        ("gpt2", {"cluster": "h100x8", "napkin": True}, "napkin"),
        ("gpt2", {"cluster": "h100x8", "days": "?"}, "napkin"),
        ("gpt2", {"cluster": "h100x8", "audit_mfu": True}, "audit"),
    ],
)
def test_which_planner_answers(model, given, kind):
    """A model asks for a layout unless something is said that only a napkin has; an audit goes first."""
    assert kind_of_question(model, {**NOTHING, **given}) == kind
