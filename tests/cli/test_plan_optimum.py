import pytest


def test_a_budget_is_split_by_every_law(ask):
    """The budget of Gopher, 5.76e23: 69.3B by 20 tokens a parameter, and the table has each law."""
    answer = ask("plan", "--compute-optimal", "--flops", "5.76e23", "--json").json["answer"]
    assert answer["num_parameters"] == pytest.approx((5.76e23 / 120) ** 0.5)
    assert answer["num_tokens"] == pytest.approx(20 * answer["num_parameters"])
    assert [each["law"] for each in answer["laws"]] == [
        "20-tokens",
        "approach-1",
        "approach-2",
        "approach-3",
        "replication",
    ]
    out = ask("plan", "--compute-optimal", "--flops", "5.76e23").out
    assert "tokens = 5.76e23 FLOP / (6 · 69.3B) = 1.39T" in out


@pytest.mark.parametrize(("law", "billions"), [("approach-3", 40.3), ("replication", 72.2)])
def test_another_law_may_be_asked(ask, law, billions):
    """`--law` chooses; a law with a loss predicts it."""
    answer = ask("plan", "--compute-optimal", "--flops", "5.76e23", "--law", law, "--json").json["answer"]
    assert round(answer["num_parameters"] / 1e9, 1) == billions
    assert answer["loss"] > 1.8


def test_a_model_or_a_corpus_gives_the_budget(ask):
    """70B ask for 1.4T tokens, and 1.4T tokens for 70B: 5.88e23 FLOPs."""
    for words in (("--params", "70B"), ("--tokens", "1.4T")):
        answer = ask("plan", "--compute-optimal", *words, "--json").json["answer"]
        assert answer["total_flops"] == pytest.approx(6 * 70e9 * 1.4e12)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("llama-3-8b", "--flops", "1e24"), 2, "llama-3-8b: without chips"),
        (("--flops", "1e24", "--mfu", "0.4"), 2, "--mfu says nothing without chips"),
        (("--flops", "1e24", "--chips", "8", "--price", "$2"), 2, "--chips, --price say nothing without chips"),
        (("--flops", "1e24", "--batch", "8"), 2, "--batch goes with"),
        (("--flops", "1"), 3, "0.091 of a parameter"),
        (("--params", "1e260"), 2, "too large to compute"),
    ],
)
def test_what_says_nothing_here_is_refused(ask, words, code, message):
    """A MODEL and options that a budget without chips passes over are told; less than a parameter does not fit."""
    answer = ask("plan", "--compute-optimal", *words)
    assert answer.code == code
    assert message in answer.err


def test_a_law_without_an_answer_is_left_out_of_the_table(ask):
    """Of one parameter approach 3 wants half a token: the others answer, and the assumptions say why it does not."""
    told = ask("plan", "--compute-optimal", "--params", "1", "--json").json
    assert "approach-3" not in [each["law"] for each in told["answer"]["laws"]]
    assert any("not in the table: approach-3" in line for line in told["assumptions"])


def test_a_run_of_two_parameters_is_an_answer(ask):
    """989.4e12·1e-12 FLOP in a second: √(989.4/120) = 2.87, so 2 parameters, and no contradiction."""
    words = ("--compute-optimal", "--days", "1s", "--on", "h100", "--mfu", "1e-12", "--json")
    assert ask("plan", *words).json["answer"]["num_parameters"] == int((989.4 / 120) ** 0.5)


def test_one_of_the_three_is_given(ask):
    """None or two: a message that names the ways to ask."""
    for words in ((), ("--params", "1B", "--flops", "1e20")):
        answer = ask("plan", "--compute-optimal", *words)
        assert answer.code == 2
        assert "Give one of --flops, --params, --tokens" in answer.err
