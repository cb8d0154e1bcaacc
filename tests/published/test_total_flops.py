"""Training FLOPs of whole runs, against what was worked out and what was printed.

`total_flops.csv` has every row of the collection that names a total. `computed` rows equal theirs in every digit;
`published` ones within the rounding of their digits, or the row says by what they differ (`explained`). `how` is the
count: 6·N·D, 8·N·D (the forward pass run again), or a convention by name, over one sequence where `notes` say so.
"""

import csv
from pathlib import Path

import pytest

from torchledger.formula.per_token import FORMULAS
from torchledger.planner import Holding, solve, state_bytes
from torchledger.planner.printed import read_printed
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, presets
from torchledger.spec.model import MoeSpec

HERE = Path(__file__).parent
COLLECTION = HERE.parents[2] / "shared" / "data" / "reference_flops.csv"
MAVERICK_EXPERTS = MoeSpec(128, 1, 8192, shared_intermediate_size=8192, every=2)
SPECS = {
    "PaLM 540B": presets.get("palm-540b"),
    "Llama-3.1-405B per 8192-token sequence": presets.get("llama-3.1-405b"),
    "Grok-1 314B per 8192-token sequence": ModelSpec(
        "grok-1", 131_072, 8192, 64, 6144, AttentionSpec(48, 8, 128), MlpSpec(32_768), moe=MoeSpec(8, 2, 32_768)
    ),
    "Llama-4 Maverick per 8192-token sequence": ModelSpec(
        "maverick", 202_048, 8192, 48, 5120, AttentionSpec(40, 8, 128), MlpSpec(16_384), moe=MAVERICK_EXPERTS
    ),
    "Nemotron-4 15B per 4096-token sequence (25.04, inflated)": ModelSpec(
        "nemotron-4-15b", 256_000, 4096, 32, 6144, AttentionSpec(48, 8), MlpSpec(24_576, "plain", "relu_squared")
    ),
}


def rows(name):
    with (HERE / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


TOTALS = rows("total_flops.csv")
FIGURES = {(row["model"], row["convention"]): int(row["flops_per_token"]) for row in rows("flops_per_token.csv")}
PUBLISHED = [row for row in TOTALS if row["kind"] != "computed" and row["how"] != "memory"]


@pytest.mark.parametrize(
    "row", [row for row in TOTALS if row["kind"] == "computed"], ids=lambda row: f"{row['model']}, {row['convention']}"
)
def test_a_computed_total_is_its_convention_times_its_tokens(row):
    """Every printed digit; what the convention gives for a token has its own test."""
    total = FIGURES[row["model"], row["convention"]] * int(row["tokens"])
    assert f"{total:.4e}" == f"{float(row['total_flops']):.4e}"


def total_of(row):
    """FLOPs by the row's own count."""
    tokens = float(row["tokens"])
    if row["how"] in {"6ND", "8ND"}:
        return int(row["how"][0]) * float(row["params"]) * tokens
    length = int(tokens) if row["notes"].startswith("FLOPs of one sequence") else 2048
    return float(FORMULAS[row["how"]][2](SPECS[row["model"]], length)) * tokens


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["model"])
def test_a_published_total_is_met_within_its_rounding_or_explained(row):
    """The digits that are printed decide, of the total and of what it is worked out from (`3.7e12` has two).

    A difference has its reason beside it, and none is beyond 26 %.
    """
    total, printed = total_of(row), read_printed(row["total_flops"])
    rounded = sum(read_printed(row[name]).relative for name in ("params", "tokens") if row[name])
    assert printed.is_reproduced_by(total, rounded) or row["explained"]
    assert total == pytest.approx(printed.value, rel=0.26)


def test_the_three_totals_that_everybody_quotes():
    """GPT-3 3.14e23, Llama-3-405B 3.8e25, DeepSeek-V3 3.3e24, by 6·N·D and nothing else."""
    quoted = {"GPT-3 175B": "3.14e23", "Llama-3.1-405B": "3.8e25", "DeepSeek-V3": "3.3e24"}
    found = {row["model"]: total_of(row) for row in PUBLISHED if row["how"] == "6ND"}
    assert all(read_printed(text).is_reproduced_by(found[name]) for name, text in quoted.items())


def test_what_the_explanations_say_is_so():
    """Each number in `explained` that can be worked out."""
    llama = SPECS["Llama-3.1-405B per 8192-token sequence"]
    assert f"{FORMULAS['Megatron-Core 2024'][2](llama, 8192) * 8192:.3e}" == "2.151e+16"
    D = llama.hidden_size
    query_output, key_value, mlp = 2 * D * D, 2 * D * 8 * 128, 3 * D * 53_248
    assert (query_output + key_value + mlp) / D**2 == 11.875
    nemotron = SPECS["Nemotron-4 15B per 4096-token sequence (25.04, inflated)"]
    own = FORMULAS["Megatron-Core 2024"][2](nemotron, 4096)
    assert round(FORMULAS["Narayanan"][2](nemotron, 4096) / own - 1, 2) == 0.13
    assert round(6 * 32 * 6144 * 24_576 / own, 2) == 0.31  # what a third matrix of the MLP would add
    routers = 24 * 128 * 5120 * 6 * 8192  # in every other layer
    assert round(routers / 8.92e14 * 100, 2) == 0.09
    hardware = (6 * 175e9 + 12 * 96 * 12_288 * 2048) * 4 / 3 * 300e9  # OPT-175B
    assert f"{hardware:.2e}" == "4.32e+23"


def test_the_two_checks_of_the_course():
    """143.93 days at the course's peak, and 40B parameters."""
    days = solve(params=70e9, tokens=15e12, num_chips=1024, mfu=0.5, peak_flops_per_s=989.5e12).days
    assert f"{days:.2f}" == "143.93"
    assert Holding("nominal", 8, 80 * 10**9, state_bytes("fp32")).params == 40 * 10**9


@pytest.mark.skipif(not COLLECTION.is_file(), reason="the collection that these rows are copied from is not here")
def test_no_row_of_the_collection_is_left_out():
    """Each of its 342 rows stands here as a figure per token, a total, or both."""
    with COLLECTION.open(newline="", encoding="utf-8") as file:
        collected = list(csv.DictReader(file))
    totals = {(row["model"], row["convention"]) for row in TOTALS}
    assert len(collected) == 342
    for row in collected:
        key = (row["model"], row["convention"])
        assert key in FIGURES or key in totals, key
        if key in FIGURES and row["flops_per_token"]:
            assert FIGURES[key] == int(row["flops_per_token"])
        if row["total_train_flops"]:
            assert key in totals, key
