"""Letters for sizes: with the numbers put in, the polynomial is the count."""

import sys
from dataclasses import replace

import pytest

from torchledger.formula import count, num_parameters
from torchledger.formula.symbolic import SymbolicError, polynomial
from torchledger.ledger import Convention
from torchledger.spec import Recipe
from torchledger.spec.presets import get

sympy = pytest.importorskip("sympy")

PRESETS = (
    "llama-3-8b",
    "gpt2",
    "gemma-2-2b",
    "gpt-neox-20b",
    "mixtral-8x7b",
    "deepseek-v2-lite",
    "olmo-2-7b",
    "opt-350m",
    "bloom-560m",
)
RECIPES = (
    Recipe(batch_size=2, sequence_length=64),
    Recipe(batch_size=3, sequence_length=32, attention="math", precision="bf16", recompute="full"),
)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("recipe", RECIPES, ids=["fused", "math and recompute"])
@pytest.mark.parametrize(
    "convention",
    [Convention(), Convention(attention="executed", recompute=True), Convention(embedding=True), Convention("all")],
    ids=lambda convention: convention.text,
)
def test_with_numbers_put_in_the_polynomial_is_the_count(name, recipe, convention):
    spec = get(name)
    if convention.operations == "all":  # with windows that is refused, see below
        spec = replace(spec, attention=replace(spec.attention, window_pattern=()))
    answer = polynomial(spec, recipe, convention=convention)
    # with recompute under its own phase, however the convention reads it
    reading = Convention(convention.operations, convention.attention, convention.embedding, recompute=True)
    for phase in answer.flops:
        assert answer.evaluated(phase) == count(spec, recipe, convention=reading).where(phase=phase).flops
    assert int(answer.parameters.subs(answer.values)) == num_parameters(spec)


def test_the_polynomial_of_a_llama_is_the_one_a_textbook_prints():
    B, T, L, D, H, K, d, F, V = sympy.symbols("B T L D H K d F V", positive=True, integer=True)
    answer = polynomial(get("llama-3-8b"))
    maps = L * (2 * D * H * d + 2 * D * K * d + 3 * D * F) + D * V
    forward = 2 * B * T * maps + 4 * L * B * H * T**2 * d
    assert sympy.expand(answer.flops["forward"] - forward) == 0
    assert sympy.expand(answer.total - 3 * forward) == 0
    assert sympy.expand(answer.parameters - (maps + D * V + L * 2 * D + D)) == 0


def test_exact_attention_is_a_triangle():
    B, T, L, H, d = sympy.symbols("B T L H d", positive=True, integer=True)
    full, exact = (
        polynomial(get("llama-2-7b"), convention=Convention(attention=attention)).flops["forward"]
        for attention in ("full", "exact")
    )
    assert sympy.expand(full - exact - 4 * L * B * H * d * (T**2 - T * (T + 1) / 2)) == 0


@pytest.mark.parametrize("convention", [Convention(attention="exact"), Convention("all")])
def test_a_window_makes_no_polynomial_and_the_message_says_what_does(convention):
    with pytest.raises(SymbolicError, match="attention='full' or 'executed' and operations='contractions'"):
        polynomial(get("mistral-7b"), convention=convention)


def test_without_sympy_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sympy", None)
    with pytest.raises(SymbolicError, match=r"pip install 'torchledger\[symbolic\]'"):
        polynomial(get("gpt2"))
