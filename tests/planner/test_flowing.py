import itertools
from dataclasses import replace

import pytest

from torchledger.planner.rank_ledger import rank_ledger
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, NormSpec, Recipe, Strategy
from torchledger.tracer import trace_step
from torchledger.trainer.layout import local_recipe
from torchledger.trainer.step import build_step, example_batch

LLAMA = ModelSpec("llama", 128, 16, 2, 32, AttentionSpec(4), MlpSpec(48))
NORMED = ModelSpec("olmo", 128, 16, 2, 32, AttentionSpec(4, query_key_norm="full"), MlpSpec(48), NormSpec("layer"))
SPLIT = Strategy(tensor_parallel=2)
BY_TOKENS = Strategy(tensor_parallel=2, sequence_parallel=True)


def sent(ledger):
    """Bytes that a rank sends in a step, by the name of the collective."""
    found = {}
    for line in ledger:
        if line.kind == "collective":
            name = line.op.partition(" ")[0]
            found[name] = found.get(name, 0) + line.total.bytes_sent
    return found


def looked_at(spec, recipe, strategy):
    """The step of the first rank on no memory."""
    mine = local_recipe(recipe, strategy)

    def build():
        step, numbers = build_step(spec, mine, initialized=False, strategy=strategy), itertools.count()
        batch = example_batch(mine)
        return lambda: step(batch, next(numbers))

    return trace_step(build, world_size=strategy.num_ranks, rank=0).ledger


@pytest.mark.parametrize(
    ("spec", "targets", "strategy"),
    [
        (LLAMA, ("down",), SPLIT),
        (LLAMA, ("gate", "up"), BY_TOKENS),
        (LLAMA, ("query", "value"), BY_TOKENS),
        (LLAMA, ("key",), SPLIT),
        (NORMED, ("key",), SPLIT),
        (NORMED, ("value", "down"), BY_TOKENS),
    ],
)
def test_no_gradient_comes_back_to_what_has_no_adapter_before_it(spec, targets, strategy):
    """Where some linear layers have adapters: FLOPs and bytes by formula are those of the step itself."""
    recipe = Recipe(batch_size=2, sequence_length=8, lora_rank=3, lora_targets=targets)
    traced, formula = looked_at(spec, recipe, strategy), rank_ledger(spec, recipe, strategy)
    assert formula.flops == traced.flops
    assert sent(formula) == pytest.approx(sent(traced))


@pytest.mark.parametrize(
    ("spec", "recipe"),
    [
        # the second run ends before the last partial results are added up, and has the norms' sums of squares
        (NORMED, Recipe(batch_size=2, sequence_length=8, recompute="full")),
        # of the last norm, which alone is trained, ranks split nothing: each knows the norm of its gradient
        (replace(LLAMA, tied_embeddings=True), Recipe(batch_size=2, sequence_length=8, trainable=("head",))),
    ],
)
def test_ranks_that_split_matrices_send_what_the_formula_says(spec, recipe):
    """Of a norm over all heads that stands before, run again, and of a head that is tied, trained alone."""
    assert sent(rank_ledger(spec, recipe, BY_TOKENS)) == pytest.approx(sent(looked_at(spec, recipe, BY_TOKENS)))
