"""Every second of a step has a cause."""

from dataclasses import replace

import pytest

from torchledger.machine import parse_cluster
from torchledger.planner.causes import stage_seconds
from torchledger.planner.estimator import Estimator
from torchledger.planner.outcome import CAUSES
from torchledger.planner.shard import num_micro_batches
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe, Strategy

SPEC = ModelSpec("small", 1024, 1024, 8, 256, AttentionSpec(8), MlpSpec(1024))
RECIPE = Recipe(batch_size=32, sequence_length=1024, precision="bf16-master")


def seconds_of(spec, recipe, strategy, cluster):
    """Seconds by cause of every stage, and the step's cost."""
    estimator = Estimator(spec, recipe, cluster)
    step, rules = estimator.step(strategy), estimator.rules(strategy)
    found = [
        stage_seconds(chunks, index, step, strategy, rules, fabric=estimator.fabric, constants=estimator.constants)
        for index, chunks in enumerate(estimator.stages(strategy))
    ]
    return found, step


def alone(strategy, recipe=RECIPE):
    """Seconds by cause of the first stage of the small model on H100s."""
    found, _ = seconds_of(SPEC, recipe, strategy, parse_cluster(f"h100x{strategy.num_ranks}"))
    return found[0]


def test_causes_add_up_to_the_step(layouts):
    """On every stage of every layout the causes add up to the step to 1e-9, and each that is told is above zero."""
    for layout in layouts:
        found, step = seconds_of(*layout)
        for each in found:
            assert sum(each.values()) == pytest.approx(step.step_s, rel=1e-9), layout.strategy
            assert min(each.values()) > 0


@pytest.mark.parametrize("offload", [{"offload_optimizer": True}, {"offload_activations": 0.7}])
def test_what_is_offloaded_has_its_cause(layouts, offload):
    """Copies to and from the host are a cause of their own, and all causes still add up to the step to 1e-9."""
    for layout in layouts[:60]:
        recipe = replace(layout.recipe, **offload)
        found, step = seconds_of(layout.spec, recipe, layout.strategy, layout.cluster)
        for each in found:
            assert sum(each.values()) == pytest.approx(step.step_s, rel=1e-9), layout.strategy
        assert all(each.get("host transfers", 0.0) >= sum(step.host_s) for each in found)
        assert any(each.get("host transfers", 0.0) > 0 for each in found)


def test_causes_have_names_of_the_list(layouts):
    """Causes are those of `CAUSES`, in its order, and only those that take time."""
    for layout in layouts[:20]:
        for each in seconds_of(*layout)[0]:
            assert list(each) == [cause for cause in CAUSES if cause in each]
            assert all(each.values())


def test_a_pipeline_of_two_chunks_counts_half_of_the_micro_batches_in_each():
    """DualPipe's rank computes m/2 micro-batches of two parts: as much as 1F1B's rank m of one, on even layers."""
    strategy = Strategy(stack="torchledger", pipeline_parallel=4, micro_batch_size=1)
    one = alone(strategy)
    both = alone(replace(strategy, schedule="dualpipe"))
    spread = ("attention", "memory-bound operations")
    last = seconds_of(SPEC, RECIPE, strategy, parse_cluster("h100x4"))[0][-1]
    assert both["attention"] == pytest.approx(one["attention"])
    # rank 0 holds the first part and the last: half of the embedding's and half of the head's bytes
    assert both["memory-bound operations"] == pytest.approx((one[spread[1]] + last[spread[1]]) / 2)


def test_what_is_computed_again_is_recompute_and_what_is_sent_again_is_communication():
    """Full recompute leaves the seconds of matmuls alone and adds forward exchanges to communication."""
    strategy = Strategy(stack="megatron", tensor_parallel=2, micro_batch_size=1)
    kept, again = alone(strategy), alone(strategy, replace(RECIPE, recompute="full"))
    assert "recompute" not in kept
    assert again["recompute"] > 0
    assert again["matmul"] == pytest.approx(kept["matmul"])
    # layers: 2 all-reduces forward, 2 backward, 2 again; the ends' stay as they are
    ends = kept["tensor parallel communication"] / 4
    assert again["tensor parallel communication"] > kept["tensor parallel communication"] + ends


@pytest.mark.parametrize(
    ("strategy", "cause"),
    [
        (Strategy(tensor_parallel=2), "tensor parallel communication"),
        (Strategy(context_parallel=2), "context parallel communication"),
        (Strategy(data_parallel=2), "data parallel communication"),
        (Strategy(data_parallel=2, shard_level=3, stack="fsdp2"), "weight gathering"),
        (Strategy(pipeline_parallel=2), "pipeline bubble"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_each_kind_of_parallelism_has_its_cause(strategy, cause):
    """A kind of parallelism alone has its own cause; one rank alone has none of them."""
    strategy = replace(strategy, micro_batch_size=1)
    assert cause in alone(strategy)
    assert cause not in alone(Strategy(micro_batch_size=1))


def test_the_bubble_of_even_stages_is_the_published_share():
    """1F1B waits (p - 1)/m of what it computes: arXiv:2104.04473, section 2.2.1; ends make it a little more."""
    strategy = Strategy(pipeline_parallel=4, micro_batch_size=1, stack="torchledger")
    found, step = seconds_of(SPEC, RECIPE, strategy, parse_cluster("h100x4"))
    count = num_micro_batches(RECIPE, strategy)
    slowest = min(each["pipeline bubble"] for each in found)
    busy = max(step.pipeline.busy_s)
    assert 0 < slowest <= (4 - 1) / count * busy
