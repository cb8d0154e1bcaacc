import pytest

LLAMA = ("--params", "70B", "--tokens", "15T", "--on", "h100x1024", "--mfu", "0.5")


def test_the_lecture_s_question(ask):
    """70B parameters, 15T tokens, 1,024 H100, half the peak: 144 days, with the arithmetic and the peak it took."""
    answer = ask("plan", *LLAMA)
    assert answer.code == 0
    assert "144 days" in answer.out.splitlines()[0]
    assert "time = 6.30e24 FLOP / (86,400 s · 506.6 PFLOP/s) = 144 days" in answer.out
    assert "989.4 TFLOP/s, the dense bf16 peak of H100 SXM" in answer.out
    assert "989.5 TFLOP/s" in answer.out


def test_either_peak_gives_144_days(ask):
    """The catalog's 989.4 and the lecture's 1979 / 2 differ by one part in ten thousand."""
    for peak in ((), ("--peak", "989.5TFLOP/s")):
        assert round(ask("plan", *LLAMA, *peak, "--json").json["answer"]["days"]) == 144


def test_eight_h100_hold_forty_billion(ask):
    """FP32 AdamW is 4 + 4 + 8 = 16 bytes a parameter: 8 · 80e9 / 16 = 40e9; the driver's bytes stand beside it."""
    answer = ask("plan", "--solve", "params", "--on", "h100x8", "--precision", "fp32", "--json").json["answer"]
    assert answer["num_parameters"] == 8 * 80 * 10**9 // (4 + 4 + 8) == 40 * 10**9
    reported = [row for row in answer["holdings"] if row["memory"] == "reported by the driver"]
    assert reported[0]["bytes_per_chip"] == 81559 * 2**20


@pytest.mark.parametrize("asked", [("--solve", "params"), ("--params", "?")])
def test_a_question_mark_asks_like_solve(ask, asked):
    """`--params '?'` and `--solve params` are the same question."""
    assert "40B parameters are the most" in ask("plan", *asked, "--on", "h100x8").out


def test_every_precision_is_shown(ask):
    """The answer by memory shows each way to keep the state, with its bytes."""
    out = ask("plan", "--solve", "params", "--on", "h100x8").out
    for precision in ("fp32", "bf16", "bf16-master", "bf16-moments", "bf16-pure"):
        assert f"\n{precision} " in out


@pytest.mark.parametrize("name", ["params", "tokens", "days", "chips", "mfu"])
def test_any_one_quantity_is_solved(ask, name):
    """Leaving one of the five open gives it back from the other four."""
    whole = {"params": 7e9, "tokens": 2e12, "days": 21.0, "chips": 512.0, "mfu": 0.39}
    whole["mfu"] = 6 * whole["params"] * whole["tokens"] / (whole["days"] * 86400 * whole["chips"] * 989.4e12)
    words = [word for key, value in whole.items() if key != name for word in (f"--{key}", repr(value))]
    words = [word.removesuffix(".0") for word in words]
    answer = ask("plan", *words, "--on", "h100", "--solve", name, "--json").json["answer"]
    keys = {"params": "num_parameters", "tokens": "num_tokens", "chips": "num_chips"}
    assert answer[keys.get(name, name)] == pytest.approx(whole[name], rel=1e-6)


def test_a_chip_without_a_number_asks_for_it(ask):
    """Work and time known, chips without a number: how many is what is left."""
    answer = ask("plan", "--params", "8B", "--tokens", "1T", "--days", "10", "--on", "h100", "--json").json["answer"]
    assert answer["solved"] == ["num_chips"]


def test_an_assumed_mfu_is_said(ask):
    """Without an MFU, that of published runs is taken, and the answer says so and why."""
    answer = ask("plan", "--params", "8B", "--tokens", "1T", "--on", "h100x64", "--json").json
    assert answer["answer"]["mfu"] == 0.4
    assert any("MFU 0.4 is assumed" in line and "--mfu" in line for line in answer["assumptions"])


def test_a_price_gives_a_bill(ask):
    """Money is chip-hours times price, in the price's currency."""
    answer = ask("plan", *LLAMA, "--price", "2.80 EUR", "--json").json["answer"]
    assert answer["money"] == pytest.approx(answer["chip_hours"] * 2.8)
    assert answer["currency"] == "EUR"


def test_a_budget_gives_the_largest_model(ask):
    """With money, price and tokens, the parameters follow; chips and days stay open."""
    words = ("--tokens", "1T", "--on", "h100", "--money", "$1M", "--price", "$2.80", "--mfu", "0.4", "--params", "?")
    answer = ask("plan", *words, "--json").json["answer"]
    assert answer["num_parameters"] == int(1e6 / 2.8 * 3600 * 989.4e12 * 0.4 / (6 * 1e12))
    assert answer["days"] is None


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--params", "70B"), 2, "which chips"),
        (("--params", "70X", "--on", "h100"), 2, "'X' is no known suffix"),
        (("--params", "70B", "--on", "h1oo"), 2, "no chip is named"),
        ((*LLAMA, "--solve", "mfu"), 2, "both given and asked for"),
        (("--params", "?", "--tokens", "?", "--on", "h100x8"), 2, "one quantity is asked for at a time"),
        (("--params", "70B", "--on", "h100x8"), 2, "quantities are open"),
        ((*LLAMA, "--days", "30"), 2, "disagree"),
        ((*LLAMA, "--mfu", "50"), 2, "0.5 or 50%"),
        ((*LLAMA, "--price", "$2", "--money", "3 EUR"), 2, "two currencies"),
        (("--params", "70B", "--tokens", "15T", "--on", "v100x8"), 2, "does not run bf16"),
        (("--params", "70B", "--tokens", "15T", "--on", "h100x1024", "--days", "1"), 3, "of the peak"),
        (("--params", "70B", "--tokens", "1B", "--on", "h100x8"), 3, "larger than the memory"),
        (("--solve", "params", "--on", "generic-avx2-core"), 2, "memory"),
    ],
)
def test_a_wrong_question_has_a_message_and_a_code(ask, words, code, message):
    """2 for what cannot be understood, 3 for what does not fit; each says why."""
    answer = ask("plan", *words)
    assert answer.code == code
    assert message in answer.err
    assert "Traceback" not in answer.err


def test_what_does_not_fit_is_answered_too(ask):
    """Exit code 3 comes with the answer, so that one sees by how much."""
    answer = ask("plan", "--params", "70B", "--tokens", "1B", "--on", "h100x8")
    assert "does not fit" in answer.out
