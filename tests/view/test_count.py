from dataclasses import replace

from torchledger import spec
from torchledger.formula import count, memory, per_token
from torchledger.spec import Recipe
from torchledger.view.count import activation_table, convention_table, count_screen, recipe_text
from torchledger.view.terminal import draw

GPT2 = spec.load("gpt2")
RECIPE = Recipe(batch_size=2, sequence_length=64)


def test_every_figure_of_the_step_is_on_the_screen():
    """Parameters and FLOPs to the last digit, tables by phase and module, memory, assumptions."""
    ledger = count(GPT2, RECIPE)
    text = draw(count_screen(GPT2, RECIPE, ledger, depth=2, memory={"parameters": 4 * 124_439_808}, how="by formula"))
    for shown in ("124,439,808", f"{ledger.flops:,} a step", "by phase", "by module", "peak memory", "assumes"):
        assert shown in text


def test_a_mixture_is_held_against_its_active_parameters():
    """FLOPs per token are over the parameters that a token meets."""
    mixtral = spec.load("mixtral-8x7b")
    ledger = count(mixtral, RECIPE)
    text = draw(count_screen(mixtral, RECIPE, ledger, depth=1, memory={}, how="by formula"))
    assert "active" in text
    per_token = ledger.flops / (2 * 64)
    assert f"= {per_token / 12_879_925_248:.2f} × the active N" in text  # 46.7B parameters in all


def test_hardware_flops_stand_beside_model_flops():
    """A fused backward kernel makes the scores again, 2·B·H·T²·d more a layer; full recompute runs each layer again.

    GPT-2: 12 layers of 12 heads of 64, 12·D² weights in products and 4·T²·D FLOPs of attention a sequence. Recompute
    stops before the last product, of 4·D² weights: nothing that the backward pass reads comes after it.
    """
    B, T, D, L = 2, 64, 768, 12
    again = L * 2 * B * 12 * T * T * 64
    recomputed = L * (2 * B * T * (12 - 4) * D * D + 4 * B * T * T * D)
    for recompute, more in (("none", again), ("full", again + recomputed)):
        recipe = replace(RECIPE, recompute=recompute)
        ledger = count(GPT2, recipe)
        text = draw(count_screen(GPT2, recipe, ledger, depth=1, memory={}, how="by formula"))
        assert f"{ledger.flops + more:,} with attention as executed and recompute in" in text
    plain = replace(RECIPE, attention="math")
    text = draw(count_screen(GPT2, plain, count(GPT2, plain), depth=1, memory={}, how="by formula"))
    assert "hardware FLOPs" not in text


def test_activations_sum_to_the_whole():
    """The list of kept storages closes with their sum, to the last byte."""
    kept = memory(GPT2, RECIPE).activations
    table = activation_table(kept)
    assert f"({sum(each.total_bytes for each in kept):,} B)" in table.rows[-1].cells[4]


def test_formulas_in_circulation_are_listed_with_their_source():
    """One row for each way to count, each with its source."""
    table = convention_table(per_token(GPT2, 64))
    assert len(table.rows) > 5
    assert all(row.cells[3] for row in table.rows)


def test_micro_batches_are_told_where_there_are_some():
    """The recipe's line names micro-batches only when there is more than one."""
    assert "micro-batches" not in recipe_text(RECIPE)
    assert "2 micro-batches" in recipe_text(replace(RECIPE, accumulation_steps=2))
