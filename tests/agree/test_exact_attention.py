"""Causal and windowed attention pair by pair: formula and trace tell the same exact FLOPs, in numbers of pairs."""

import pytest

from torchledger.cli.looked import look
from torchledger.formula import count
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe


@pytest.mark.parametrize("kernel", ["math", "fused"])
@pytest.mark.parametrize(
    ("pattern", "pairs"),
    [
        ((), 2 * (16 * 17 // 2)),  # two layers, each sum of 1..16
        ((4, 0), (4 * 5 // 2 + 12 * 4) + 16 * 17 // 2),  # a window of 4 sees 1+2+3+4 and then 4 twelve times
    ],
)
def test_formula_and_trace_count_the_same_pairs(kernel, pattern, pairs):
    """Exact attention is 2·B·H·pairs·(head + value head) forward and twice that backward, by formula and by trace."""
    spec = ModelSpec("tiny", 64, 16, 2, 32, AttentionSpec(4, window_pattern=pattern), MlpSpec(64))
    recipe = Recipe(batch_size=3, sequence_length=16, attention=kernel)
    expected = 3 * (2 * 3 * 4 * pairs * (8 + 8))
    for ledger in (count(spec, recipe), look(spec, recipe).ledger):
        assert ledger.where(kind="attention").total.flops_exact == expected
