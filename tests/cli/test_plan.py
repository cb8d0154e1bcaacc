import pytest

from torchledger.machine import get
from torchledger.planner import assumed_mfu
from torchledger.spec import presets

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


@pytest.mark.parametrize("asked", [("--solve", "chips"), ("--chips", "?")])
@pytest.mark.parametrize(("work", "days", "number"), [("7B 140B", 30, 6), ("124M 1B", 1, 1), ("70B 1", 30, 1)])
def test_few_chips_are_an_answer_however_far_they_are_rounded(ask, asked, work, days, number):
    """6·7e9·140e9/(30·86400·989.4e12·0.4) = 5.73 are 6 chips, whose days are fewer than those given, and said to be."""
    params, tokens = work.split()
    words = ("--params", params, "--tokens", tokens, "--days", days, "--on", "h100", "--mfu", "0.4", "--json")
    told = ask("plan", *asked, *words).json
    answer = told["answer"]
    assert answer["num_chips"] == number
    assert answer["days"] == pytest.approx(answer["total_flops"] / (number * 989.4e12 * 0.4 * 86400))
    assert answer["days"] < days == told["question"]["days"]
    assert any("chips are bought whole" in line for line in told["assumptions"])


def test_the_same_number_of_chips_may_be_said_twice(ask):
    """`--chips 8` beside `h100x8` is no contradiction; beside a known cluster it is its size."""
    words = ("--params", "7B", "--tokens", "1T", "--json")
    for on, number in (("h100x8", 8), ("h100", 8), ("dgx-h100", 16)):
        assert ask("plan", *words, "--on", on, "--chips", number).json["answer"]["num_chips"] == number


def test_an_assumed_mfu_is_said(ask):
    """Without an MFU, that of published runs on the chip in the format is taken, and the answer says so and why."""
    for precision in ("bf16", "fp8"):
        words = ("--params", "8B", "--tokens", "1T", "--on", "h100x64", "--precision", precision)
        answer = ask("plan", *words, "--json").json
        assert answer["answer"]["mfu"] == assumed_mfu(get("h100"), precision).mfu
        told = f"MFU {answer['answer']['mfu']} is assumed"
        assert any(told in line and "H100 SXM" in line and "--mfu" in line for line in answer["assumptions"])


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
        ((), 2, "what is asked?"),
        (("--on", "h100x8"), 2, "what is asked?"),
        (("--params", "70B"), 2, "which chips"),
        (("--params", "70B", "--tokens=-1T", "--on", "h100x8"), 2, "it is negative"),
        (("--params", "70B", "--tokens", "0", "--on", "h100x8"), 2, "above zero"),
        (("--params", "70B", "--tokens", "1T", "--on", "h100x0"), 2, "at least one chip"),
        (("--solve", "params", "--days", "30", "--on", "h100x8"), 2, "quantities are open (params, tokens)"),
        (("--solve", "money", *LLAMA), 2, "no price is known"),
        ((*LLAMA, "--money", "?"), 2, "no price is known"),
        ((*LLAMA, "--price", "$2", "--prices", __file__), 2, "--price and --prices"),
        ((*LLAMA, "--pue", "0.5"), 2, "PUE is 0.5"),
        ((*LLAMA, "--goodput", "1.5"), 2, "goodput is 1.5"),
        ((*LLAMA, "--tp", "8"), 2, "--tp goes with a MODEL"),
        (
            ("gpt2", "--on", "h100x8", "--dp", "8", "--mfu", "0.4"),
            2,
            "--dp goes with a layout, and --mfu asks for none",
        ),
        (("gpt2", "--on", "h100x8", "--dp", "8", "--solve", "days"), 2, "and --solve days asks for none"),
        (
            ("gpt2", "--napkin", "--on", "h100x8", "--tokens", "1B", "--sequence", "0"),
            2,
            "--sequence: must be at least",
        ),
        (("gpt2", "--napkin", "--on", "h100x8", "--tokens", "1B", "--sequence", "4096"), 2, "1024 learned positions"),
        (("gpt2", "--napkin", "--on", "h100x8", "--sequence", "1e200"), 2, "at most 1e+15"),
        (
            ("--params", "7B", "--tokens", "1T", "--on", "h100x8", "--chips", "16"),
            2,
            "'h100x8' says 8 chips and --chips 16",
        ),
        (("--params", "7B", "--tokens", "1T", "--on", "dgx-h100x8", "--chips", "16"), 2, "leave one of the two out"),
        (("gpt2", "--on", "h100x8", "--chips", "16"), 2, "'h100x8' says 8 chips and --chips 16"),
        (("gpt2", "--on", "h100x8", "--tokens", "0"), 2, "--tokens: must be at least 1, is 0"),
        (("gpt2", "--on", "h100", "--chips", "0"), 2, "--chips: must be at least 1, is 0"),
        (("--solve", "params", "--on", "h100", "--chips", "0"), 2, "--chips is 0; it must be above zero"),
        (("--params", "7B", "--tokens", "1T", "--on", "h100", "--chips", "1e250"), 2, "at most 1e+60"),
        (
            ("--solve", "params", "--tokens", "1e30", "--days", "1s", "--on", "h100x8", "--mfu", "0.4"),
            3,
            "give more chips",
        ),
        (
            ("--solve", "tokens", "--params", "1e12", "--days", "1e-9", "--on", "h100x8", "--mfu", "0.4"),
            3,
            "less than one",
        ),
        ((*LLAMA, "--zero", "1"), 2, "--zero says nothing of time"),
        ((*LLAMA, "--law", "approach-1"), 2, "--law says nothing without --compute-optimal"),
        ((*LLAMA, "--sequence", "1024"), 2, "--sequence says nothing without a MODEL"),
        (("--solve", "params", "--on", "h100x8", "--mfu", "0.4"), 2, "--mfu says nothing where memory alone answers"),
        ((*LLAMA, "--tflops", "400"), 2, "--tflops goes with --audit-mfu"),
        ((*LLAMA, "--flops", "1e24"), 2, "--flops is a budget"),
        ((*LLAMA, "--compute-optimal"), 2, "nothing is left for --compute-optimal"),
        (("--compute-optimal", "--on", "h100x8"), 2, "how large is the run"),
        (("llama-3-8b", *LLAMA), 2, "MODEL and --params"),
        (
            ("llama-3-8b", "--solve", "params", "--tokens", "1T", "--days", "9", "--on", "h100x8"),
            2,
            "MODEL says how many",
        ),
        (("--params", "70X", "--on", "h100"), 2, "'X' is no known suffix"),
        (("--params", "70B", "--on", "h1oo"), 2, "give it with --catalog FILE"),
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


def test_a_model_brings_its_own_parameters_and_flops(ask):
    """`plan llama-3-8b --mfu 0.5`: 8.03B parameters, and FLOPs a token as `count` has them, attention in."""
    words = ("llama-3-8b", "--tokens", "15T", "--on", "h100x1024", "--mfu", "0.5", "--json")
    answer = ask("plan", *words).json["answer"]
    counted = ask("count", "llama-3-8b", "--json").json["answer"]["total_flops"] / 8192
    assert answer["num_parameters"] == 8_030_261_248
    assert answer["total_flops"] == pytest.approx(counted * 15e12)
    assert answer["days"] == pytest.approx(counted * 15e12 / (1024 * 989.4e12 * 0.5) / 86400)


def test_a_model_at_the_usual_speed_takes_as_long_by_its_own_flops_as_by_6n(ask):
    """The assumed MFU is by 6·N: for a model it is turned into its own FLOPs, so that the days stay the same."""
    words = ("--tokens", "15T", "--on", "h100x1024", "--json")
    own = ask("plan", "llama-3-8b", "--napkin", *words).json["answer"]
    napkin = ask("plan", "--params", "8030261248", *words).json["answer"]
    assert own["days"] == pytest.approx(napkin["days"], rel=1e-6)
    assert own["mfu"] > napkin["mfu"]


def test_a_shorter_sequence_costs_fewer_flops_a_token(ask):
    """Attention's share falls with the sequence."""
    words = ("llama-3-8b", "--tokens", "1T", "--on", "h100x64", "--mfu", "0.4", "--json")
    long, short = (ask("plan", *words, *more).json["answer"]["total_flops"] for more in ((), ("--sequence", "1024")))
    assert short < long


def test_money_can_be_asked_for(ask):
    """`--solve money` and `--money '?'` are chip-hours times price."""
    for asked in (("--solve", "money"), ("--money", "?")):
        answer = ask("plan", *LLAMA, *asked, "--price", "$2", "--json").json["answer"]
        assert answer["money"] == pytest.approx(answer["chip_hours"] * 2)
        assert "money" in answer["solved"]


def test_an_unknown_bill_names_its_flags(ask):
    """No price ships: money and carbon are unknown, and say what would make them known."""
    out = ask("plan", *LLAMA).out
    assert "unknown; --price '$2.80' or --prices FILE gives it" in out
    assert "unknown; --carbon gives it" in out
    assert ask("plan", *LLAMA, "--json").json["answer"]["carbon_kg"] is None


def test_a_file_of_prices_is_read(ask, tmp_path):
    """The chip's own price, with its day and source among the assumptions; a bad file tells all its mistakes."""
    prices = tmp_path / "prices.toml"
    prices.write_text('[h100]\nprice = "3 EUR"\ndate = 2026-11-01\nsource = "our contract"\n', encoding="utf-8")
    answer = ask("plan", *LLAMA, "--prices", prices, "--json").json
    assert answer["answer"]["money"] == pytest.approx(answer["answer"]["chip_hours"] * 3)
    assert answer["answer"]["currency"] == "EUR"
    assert "price: 3.00 EUR a chip-hour (our contract, 2026-11-01)" in answer["assumptions"]
    prices.write_text("[h100]\nprice = 0\n", encoding="utf-8")
    bad = ask("plan", *LLAMA, "--prices", prices)
    assert bad.code == 2
    assert "price: 0 is no price" in bad.err
    assert "date: is missing" in bad.err


def test_energy_and_carbon_follow_the_chip_hours(ask):
    """(700 W + 300 W)·1.2 for every chip-hour, and 400 g for every kWh."""
    words = ("--host-power", "300W", "--pue", "1.2", "--carbon", "400g/kWh", "--json")
    answer = ask("plan", *LLAMA, *words).json["answer"]
    assert answer["energy_j"] == pytest.approx(answer["chip_hours"] * 3600 * 1000 * 1.2)
    assert answer["carbon_kg"] == pytest.approx(answer["energy_j"] / 3.6e6 * 0.4)


def test_losses_stand_apart_from_the_days(ask):
    """The days are those of the steps; the wall clock has restarts, lost work and checkpoints on top."""
    answer = ask("plan", *LLAMA, "--json").json["answer"]
    assert answer["days"] == pytest.approx(143.94, abs=0.01)
    assert answer["wall_days"] == pytest.approx(answer["days"] / (1 - sum(answer["losses"].values())))
    assert list(answer["losses"]) == ["restarts", "work lost to failures", "checkpoints"]
    given = ask("plan", *LLAMA, "--goodput", "0.9", "--json").json["answer"]
    assert given["wall_days"] == pytest.approx(answer["days"] / 0.9)
    failing = ask("plan", *LLAMA, "--failure-every", "1h", "--restart-time", "30m", "--json").json["answer"]
    assert failing["losses"]["restarts"] > 0.3


def test_a_deadline_gives_the_compute_optimal_model(ask):
    """30 days on 512 H100 at 40 %: N = √(C/120), D = 20·N."""
    words = ("--compute-optimal", "--days", "30", "--on", "h100x512", "--mfu", "0.4", "--json")
    answer = ask("plan", *words).json["answer"]
    flops = 512 * 989.4e12 * 0.4 * 30 * 86400
    assert answer["num_parameters"] == pytest.approx((flops / 120) ** 0.5, rel=1e-6)
    assert answer["num_tokens"] == pytest.approx(20 * answer["num_parameters"], rel=1e-6)
    assert any("FLOPs^0.5" in step for step in answer["arithmetic"])


def test_a_model_gives_its_compute_optimal_days_or_chips(ask):
    """The inverse: 70B on 1.4T tokens, for days from chips and for chips from days."""
    words = ("--compute-optimal", "--params", "70B", "--mfu", "0.4", "--json")
    days = ask("plan", *words, "--on", "h100x512").json["answer"]
    assert days["num_tokens"] == pytest.approx(1.4e12, rel=1e-9)
    assert days["days"] == pytest.approx(6 * 70e9 * 1.4e12 / (512 * 989.4e12 * 0.4) / 86400)
    chips = ask("plan", *words, "--on", "h100", "--days", "30", "--solve", "chips").json["answer"]
    assert chips["num_chips"] == -(-512 * days["days"] // 30)


def test_a_chip_of_the_users_own_is_planned_with(ask, tmp_path):
    """`--catalog FILE` has a row that extends one of ours."""
    rows = tmp_path / "chips.toml"
    rows.write_text(
        '[h100-capped]\nextends = "h100-sxm"\nname = "H100 capped"\ndense.bf16 = 700e12\nconfidence = "low"\n'
        'date = "2026-11-30"\nsource = "https://example.com"\nnotes = ""\n',
        encoding="utf-8",
    )
    words = ("--params", "7B", "--tokens", "1T", "--on", "h100-cappedx64", "--mfu", "0.5")
    answer = ask("plan", *words, "--catalog", rows, "--json").json["answer"]
    assert answer["peak_flops_per_s"] == 700e12
    assert ask("plan", *words).code == 2


def test_every_preset_has_a_napkin(ask):
    """Dense, mixture, latent attention: all of them answer in the same words."""
    for name in ("gpt2", "mixtral-8x7b", "deepseek-v3", "gemma-2-9b"):
        assert name in presets.names()
        answer = ask("plan", name, "--tokens", "1T", "--on", "h100x1024", "--napkin", "--json")
        assert answer.code == 0
        assert answer.json["answer"]["days"] > 0
