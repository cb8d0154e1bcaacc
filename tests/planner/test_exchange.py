"""What the ranks of a layer send each other: counts and bytes of the papers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torchledger.planner.exchange import (
    Exchange,
    embedding_exchanges,
    group_of,
    head_exchanges,
    layer_exchanges,
    stream_bytes,
    with_recompute,
)
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, Recipe, Strategy

GPT = ModelSpec("gpt", 51200, 2048, 96, 12288, AttentionSpec(96), MlpSpec(49152, kind="plain"))
MIXTURE = ModelSpec(
    "mixture", 1024, 64, 4, 64, AttentionSpec(8, num_key_value_heads=2), MlpSpec(128), moe=MoeSpec(8, 2, 32)
)
RECIPE = Recipe(batch_size=64, sequence_length=2048)


def of_layer(strategy: Strategy, spec: ModelSpec = GPT, *, is_moe: bool = False) -> tuple[Exchange, ...]:
    return layer_exchanges(spec, RECIPE, strategy, is_moe=is_moe, element_bytes=2, regathers=True)


def totals(found: tuple[Exchange, ...]) -> dict[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = {}
    for each in found:
        key = (each.phase, each.op)
        sums[key] = sums.get(key, 0) + each.times * each.num_bytes
    return sums


def test_tensor_parallelism_adds_up_twice_a_layer_and_pass() -> None:
    """Four all-reduces of [b, s, h] a layer (arXiv:1909.08053, section 3)."""
    size = 1 * 2048 * 12288 * 2
    strategy = Strategy(tensor_parallel=8, data_parallel=1, micro_batch_size=1)
    assert totals(of_layer(strategy)) == {("forward", "all_reduce"): 2 * size, ("backward", "all_reduce"): 2 * size}


def test_sequence_parallelism_sends_the_same_bytes_and_gathers_inputs_again() -> None:
    """An all-reduce becomes a reduce-scatter and an all-gather (arXiv:2205.05198, section 4.2.2)."""
    size = 2048 * 12288 * 2
    strategy = Strategy(tensor_parallel=8, sequence_parallel=True, micro_batch_size=1)
    assert totals(of_layer(strategy)) == {
        ("forward", "all_gather"): 2 * size,
        ("forward", "reduce_scatter"): 2 * size,
        ("backward", "all_gather"): 4 * size,
        ("backward", "reduce_scatter"): 2 * size,
    }


def test_one_rank_sends_nothing() -> None:
    assert of_layer(Strategy()) == embedding_exchanges(GPT, RECIPE, Strategy(), 2) == ()
    assert head_exchanges(GPT, RECIPE, Strategy(), 2) == ()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # keys and values of 2 heads of 8 numbers: 2048/2 tokens · 2 · 16 · 2 bytes = 64 KiB
        ("ring", {("forward", "send"): 65536, ("backward", "send"): 2 * 65536}),
        (
            "all-gather",
            {
                ("forward", "all_gather"): 131072,
                ("backward", "all_gather"): 131072,
                ("backward", "reduce_scatter"): 131072,
            },
        ),
        # queries and outputs of 8 heads beside: 1024 tokens · (8 + 2) · 16 · 2 bytes
        ("ulysses", {("forward", "all_to_all"): 327680, ("backward", "all_to_all"): 327680}),
    ],
)
def test_context_parallelism_brings_keys_to_queries(kind: str, expected: dict[tuple[str, str], int]) -> None:
    strategy = Strategy(context_parallel=2, context_kind=kind, micro_batch_size=1)  # type: ignore[arg-type]
    assert totals(of_layer(strategy, MIXTURE)) == expected


def test_every_token_goes_to_its_experts_and_back() -> None:
    """Two all-to-alls a pass, each of tokens · experts per token · hidden."""
    strategy = Strategy(data_parallel=4, expert_parallel=4, micro_batch_size=1)
    size = 2048 * 2 * 64 * 2
    assert totals(of_layer(strategy, MIXTURE, is_moe=True)) == {
        ("forward", "all_to_all"): 2 * size,
        ("backward", "all_to_all"): 2 * size,
    }


def test_tokens_go_to_their_experts_before_the_ranks_of_one_gather_them() -> None:
    """Megatron: of 8 tensor parallel ranks each sends its eighth, and the 4 that split an expert gather what came."""
    strategy = Strategy(
        data_parallel=2,
        tensor_parallel=8,
        sequence_parallel=True,
        expert_parallel=4,
        expert_tensor_parallel=4,
        micro_batch_size=1,
    )
    size = 2048 * 2 * 64 * 2 // 8
    found = layer_exchanges(MIXTURE, RECIPE, strategy, is_moe=True, element_bytes=2, regathers=False, routes_first=True)
    assert totals(tuple(each for each in found if each.cause == "expert")) == {
        ("forward", "all_to_all"): 2 * size,
        ("backward", "all_to_all"): 2 * size,
    }
    within = tuple(each for each in found if each.cause == "expert tensor")
    assert totals(within) == {
        (phase, op): 4 * size for phase in ("forward", "backward") for op in ("all_gather", "reduce_scatter")
    }
    assert group_of("expert tensor", strategy) == (4, 1)
    assert {each.module for each in found if each.cause == "tensor"} == {"layers.*.attention"}


def test_full_recompute_runs_the_forward_exchanges_again() -> None:
    once = of_layer(Strategy(tensor_parallel=8, micro_batch_size=1))
    again = [each for each in with_recompute(once, "full") if each.phase == "recompute"]
    assert sum(each.num_bytes for each in again) == sum(e.num_bytes for e in once if e.phase == "forward")
    assert with_recompute(once, "selective") == once


@pytest.mark.parametrize("by_tokens", [False, True])
def test_a_second_run_that_ends_early_leaves_out_the_last_sum(by_tokens: bool) -> None:
    """Of the forward pass's two sums, attention's is repeated and the MLP's is not; gatherings all are."""
    once = of_layer(Strategy(tensor_parallel=8, sequence_parallel=by_tokens, micro_batch_size=1))
    forward = [(each.module, each.op) for each in once if each.phase == "forward"]
    found = with_recompute(once, "full", without_last_sum=True)
    again = [(each.module, each.op) for each in found if each.phase == "recompute"]
    assert again == [
        each for each in forward if each != ("layers.*.mlp", "reduce_scatter" if by_tokens else "all_reduce")
    ]


def test_groups_follow_the_order_of_ranks() -> None:
    strategy = Strategy(tensor_parallel=4, context_parallel=2, data_parallel=8, expert_parallel=4)
    assert group_of("tensor", strategy) == (4, 1)
    assert group_of("context", strategy) == (2, 4)
    assert group_of("expert", strategy) == (4, 4)


def test_the_stream_is_of_the_context_ranks_tokens() -> None:
    strategy = Strategy(context_parallel=4, micro_batch_size=3)
    assert stream_bytes(GPT, RECIPE, strategy, 2) == 3 * 512 * 12288 * 2


def test_tokens_that_cross_once_say_of_how_many_copies_they_are() -> None:
    """A rank's buffer has a copy for each of a token's experts, all sent or one to an island; hidden or shown."""
    strategy, rules = Strategy(expert_parallel=4, data_parallel=4), {"dispatches_once": True, "hides_dispatch": True}
    found = layer_exchanges(MIXTURE, RECIPE, strategy, is_moe=True, element_bytes=2, regathers=True, **rules)
    sent = [each for each in found if each.cause == "expert"]
    assert {each.copies for each in sent} == {2}  # experts of a token
    assert all(each.is_hidden for each in sent)
    plain = [each for each in of_layer(strategy, MIXTURE, is_moe=True) if each.cause == "expert"]
    assert [replace(each, copies=0, is_hidden=False) for each in sent] == plain
