"""FLOPs per token under each convention in circulation, against figures worked out from its stated formula.

`models.csv` has the published sizes, `flops_per_token.csv` the figure of each model under each convention with the page
its formula stands on.
"""

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from torchledger.formula import flops_per_token, num_parameters, per_token
from torchledger.formula.per_token import FORMULAS
from torchledger.ledger import Convention
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, NormSpec, PositionSpec, Recipe
from torchledger.spec.presets import get, names

HERE = Path(__file__).parent
OUR_NAME = {
    "6N (all parameters)": "6N",
    "6N non-embedding (Kaplan)": "6N without embeddings",
    "Kaplan with context term": "Kaplan",
    "PaLM appendix B": "PaLM appendix B",
    "nanoGPT estimate_mfu": "nanoGPT",
    "torchtitan (2026)": "torchtitan 2026",
    "Megatron-Core (2025+), dense": "Megatron-Core 2025",
    "Megatron-Core (2024), dense": "Megatron-Core 2024",
    "llm-foundry flops_per_batch": "llm-foundry",
    "Chinchilla appendix F": "Chinchilla appendix F",
    "Chinchilla Table A4 (no embeddings, no logits)": "Chinchilla table A4",
    "Casson openai_flops_per_token x3": "Casson",
    "Narayanan 2021 model FLOPs (no recompute)": "Narayanan",
    "Narayanan 2021 eq. 3 hardware FLOPs (full recompute)": "Narayanan with recompute",
}
WITH_N = {"6N", "6N without embeddings", "Kaplan", "PaLM appendix B", "nanoGPT", "torchtitan 2026", "llm-foundry"}


def _rows(name):
    with (HERE / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _spec(row):
    """The model with the parts that the published parameter count of `row` counts.

    PaLM's counts two LayerNorms with bias a layer, BLOOM's leaves out the norm after the embedding, Qwen's its biases.
    """
    name, is_gated = row["model"], row["mlp_type"].startswith("gated")
    V, T, L, D, H, K, Q, F = (
        int(row[key]) for key in ("vocab", "seq", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn")
    )
    is_gpt = name.startswith(("GPT", "OPT"))
    biased = is_gpt or name.startswith("BLOOM")
    positions = PositionSpec("learned", num_learned=T, offset=2 if name.startswith("OPT") else 0)
    return ModelSpec(
        name,
        V,
        T,
        L,
        D,
        AttentionSpec(H, K, Q, query_bias=biased, key_bias=biased, value_bias=biased, output_bias=biased),
        MlpSpec(F, "gated" if is_gated else "plain", up_bias=biased, down_bias=biased),
        NormSpec("layer", bias=True) if biased or name.startswith("PaLM") else NormSpec("rms"),
        positions if is_gpt else PositionSpec("none"),
        tied_embeddings=row["tied_embeddings"] == "True",
    )


MODELS = {row["model"]: row for row in _rows("models.csv")}
FIGURES = _rows("flops_per_token.csv")
#: Their number of parameters is a round one, or counts what no table of sizes tells.
ROUND = ("lecture 70B", "Chinchilla Table A4")


@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith(ROUND)])
def test_the_published_sizes_give_the_published_parameters(name):
    assert num_parameters(_spec(MODELS[name])) == int(MODELS[name]["params_total"])


@pytest.mark.parametrize("row", FIGURES, ids=lambda row: f"{row['model']}, {row['convention']}")
def test_each_convention_gives_its_figure(row):
    """To the last FLOP, but for Narayanan's, which was worked out in floating point."""
    ours = OUR_NAME[row["convention"]]
    spec, T = _spec(MODELS[row["model"]]), int(MODELS[row["model"]]["seq"])
    flops, figure = FORMULAS[ours][2](spec, T), int(row["flops_per_token"])
    if ours in WITH_N and row["model"].startswith(ROUND):
        flops += 6 * (int(MODELS[row["model"]]["params_total"]) - num_parameters(spec))
    assert abs(flops - figure) <= (1 if ours.startswith("Narayanan") else 0)


@pytest.mark.parametrize("row", [row for row in FIGURES if row["notes"]], ids=lambda row: row["model"])
def test_chinchillas_table_shows_the_ratio_it_prints(row):
    """Table A4 prints FLOPs over 6ND with two decimals; the parameters are those of the published models."""
    printed = float(row["notes"].partition("ratio ")[2].partition(";")[0])
    N = int(MODELS[row["model"]]["params_total"])
    flops = FORMULAS["Chinchilla table A4"][2](_spec(MODELS[row["model"]]), 2048)
    assert math.isclose(flops / (6 * N), printed, abs_tol=0.01)


def test_every_formula_in_the_list_is_held_against_a_figure():
    assert set(FORMULAS) == set(OUR_NAME.values())
    assert {OUR_NAME[row["convention"]] for row in FIGURES} == set(FORMULAS)


@pytest.mark.parametrize("name", names())
def test_our_count_is_megatrons_with_the_whole_square_of_attention(name):
    """6 times the weights of the matmuls and 12·L·H·Q·T: to the last FLOP, on every preset.

    A mixture's weights are those that a token meets; latent attention's Q is the mean of its query and value widths.
    """
    spec, T = get(name), 64
    ours = flops_per_token(spec, Recipe(batch_size=2, sequence_length=T))
    other_half = 6 * spec.num_layers * T * spec.attention.num_heads * (spec.head_size + spec.value_head_size) // 2
    assert ours == FORMULAS["Megatron-Core 2025"][2](spec, T) + other_half


def test_the_exact_count_is_the_diagonal_more_than_half_the_square():
    spec, T = replace(get("llama-3-8b"), num_layers=2), 128
    exact = flops_per_token(spec, Recipe(sequence_length=T), Convention(attention="exact"))
    diagonal = 6 * 2 * 32 * 128
    assert exact == FORMULAS["Megatron-Core 2025"][2](spec, T) + diagonal


def test_the_list_begins_with_our_own_count_and_names_every_source():
    answers = per_token(get("gpt2"))
    assert [answer.name for answer in answers[:2]] == ["this ledger, attention full", "this ledger, attention exact"]
    assert [answer.name for answer in answers[2:]] == list(FORMULAS)
    assert all(answer.source for answer in answers)
    assert answers[0].flops == flops_per_token(get("gpt2"))
    assert answers[1].flops < answers[0].flops


def test_a_mixture_counts_the_experts_a_token_visits():
    """Mixtral 8x7B has 46.7B parameters and uses 12.9B a token (arXiv:2401.04088, section 2)."""
    answers = {answer.name: answer.flops for answer in per_token(get("mixtral-8x7b"), 4096)}
    assert math.isclose(answers["6N"], 6 * 12.9e9, rel_tol=0.005)
    layer = 4096 * (2 * 4096 + 2 * 1024) + 2 * 3 * 4096 * 14336 + 8 * 4096  # attention, two experts of eight, router
    assert answers["Megatron-Core 2025"] == 6 * (32 * layer + 32000 * 4096) + 6 * 32 * 4096 * 4096
    assert math.isclose(answers["this ledger, attention full"], answers["torchtitan 2026"], rel_tol=1e-3)


def test_latent_attention_and_a_narrow_embedding_count_their_own_matrices():
    """DeepSeek-V3 (arXiv:2412.19437, section 4.2) and OPT-350M, whose embedding of 512 is projected in and out."""
    D, H = 7168, 128
    attention = 1536 * (D + H * 192) + D * (512 + 64) + 512 * H * (128 + 128) + H * 128 * D
    mixture = (8 + 1) * 3 * D * 2048 + 256 * D
    weights = 61 * attention + 3 * 3 * D * 18432 + 58 * mixture + 129280 * D
    causal = 6 * 61 * 4096 * H * (192 + 128) // 2
    assert FORMULAS["Megatron-Core 2025"][2](get("deepseek-v3"), 4096) == 6 * weights + causal
    weights = 24 * 12 * 1024 * 1024 + 2 * 1024 * 512 + 50272 * 512
    assert FORMULAS["Megatron-Core 2025"][2](get("opt-350m"), 2048) == 6 * weights + 6 * 24 * 2048 * 1024
