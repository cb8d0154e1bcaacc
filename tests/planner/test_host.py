"""The host beside a chip: its facts, and what offload costs by hand."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib import resources

import pytest

from torchledger.machine import get, parse_cluster
from torchledger.machine.catalog import builtin
from torchledger.planner.estimator import Estimator
from torchledger.planner.fabric_facts import host_bus
from torchledger.planner.host import HostRules, host_notes, host_of, host_rules
from torchledger.planner.plan import plan
from torchledger.planner.stack import stack
from torchledger.spec import OptimizerSpec, Recipe, Strategy, presets

TABLES = tomllib.loads(resources.files("torchledger.planner").joinpath("data/hosts.toml").read_text(encoding="utf-8"))
LLAMA = presets.get("llama-3-8b")
EIGHT = parse_cluster("h100x8")
RECIPE = Recipe(batch_size=64, sequence_length=2048, precision="bf16")
STRATEGY = Strategy("megatron", data_parallel=8, micro_batch_size=1)
#: H100 SXM: PCIe 5 x16 at the share that was measured; an eighth of two sockets of 307.2 GB/s at STREAM's share.
LINK, MEMORY = 64e9 * 0.878, 2 * 307.2e9 * 0.83 / 8


def test_every_fact_has_a_source_and_a_date():
    """A constant without a source is a guess; a share is above nothing and at most all."""
    rows = [TABLES["memory"], *TABLES["link"].values(), *TABLES["host"].values()]
    assert all(row["source"] and row["date"] for row in rows)
    assert all(0 < row["share"] <= 1 for row in rows if "share" in row)


def test_every_link_has_a_rate_and_every_host_a_link():
    """Nominal rates of PCIe are those of the links' table, others stand with the link."""
    assert all(("bytes_per_s" in row) != (host_bus(name) is not None) for name, row in TABLES["link"].items())
    assert all(row["link"] in TABLES["link"] for row in TABLES["host"].values())


def test_every_form_factor_of_a_host_is_in_the_catalog():
    """A host that no chip has is a typing error."""
    known = {each.form_factor for each in builtin().chips()}
    assert {form for row in TABLES["host"].values() for form in row["form_factors"]} <= known


@pytest.mark.parametrize(
    ("name", "link", "memory"),
    [
        ("h100", LINK, MEMORY),
        ("a100-sxm-80gb", 32e9 * 0.785, 2 * 204.8e9 * 0.83 / 8),
        ("gh200-96gb", 450e9 * 0.769, 500e9 * 0.83),
        ("mi300x", 64e9 * 0.878, 2 * 12 * 38.4e9 * 0.83 / 8),
        # two chips share one Grace, whose memory is slower than both links to it
        ("gb200", 500e9 * 0.83 / 2, 500e9 * 0.83 / 2),
        # a card has the link of its form factor and an assumed host
        ("h100-pcie", 2 * 204.8e9 * 0.83 / 8, 2 * 204.8e9 * 0.83 / 8),
        ("tpu-v4", 32e9 * 0.785, 2 * 204.8e9 * 0.83 / 8),
    ],
)
def test_a_chip_has_its_link_and_its_share_of_the_memory(name, link, memory):
    """Nominal rate times share, and no copy is faster than the memory that it ends in."""
    found = host_of(get(name))
    assert (found.link_bytes_per_s, found.memory_bytes_per_s) == (pytest.approx(link), pytest.approx(memory))


def test_a_chip_that_shares_the_hosts_memory_has_it_all():
    """Apple's chips have no other memory: what moves, moves at its rate."""
    chip = get("apple-m2-ultra")
    assert host_of(chip).memory_bytes_per_s == host_of(chip).link_bytes_per_s == chip.memory_bandwidth * 0.83


def test_an_assumed_host_is_called_so():
    """Of a chip whose host nobody wrote down the answer says that it is assumed."""
    assert "assumed" in host_of(get("tpu-v4")).name
    assert "assumed" not in host_of(get("h100")).name


@pytest.mark.parametrize(
    ("name", "level", "gradient", "weight"),
    [("megatron", 0, 4, 2), ("fsdp2", 3, 4, 4), ("deepspeed", 1, 2, 2)],
)
def test_gradients_go_as_they_add_up_and_weights_come_as_they_are_stored(name, level, gradient, weight):
    """Megatron-Core adds gradients up in FP32 beside 16-bit weights; FSDP's shards are FP32; DeepSpeed has 16 bit."""
    recipe = Recipe(precision="bf16", offload_optimizer=True)
    found = host_rules(recipe, Strategy(name, data_parallel=8, shard_level=level), stack(name), host_of(get("h100")))
    assert (found.gradient_bytes, found.weight_bytes, found.kept_share) == (gradient, weight, 0)


def test_nothing_offloaded_costs_nothing():
    """No rules, no notes."""
    found = Estimator(LLAMA, RECIPE, EIGHT).host_rules(STRATEGY)
    assert found == HostRules()
    assert (found.gradient_s, found.weight_s, found.kept_s) == (0, 0, 0)
    assert host_notes(RECIPE, host_of(get("h100"))) == ()


def test_muons_products_on_the_host_are_said_not_to_be_timed():
    """Its bytes are counted, its products are not."""
    recipe = replace(RECIPE, offload_optimizer=True, optimizer=OptimizerSpec("muon"))
    assert any("Muon" in each for each in host_notes(recipe, host_of(get("h100"))))


@pytest.mark.parametrize(("level", "ranks"), [(0, 1), (1, 8)])
def test_an_offloaded_optimizer_takes_the_link_twice_and_the_hosts_memory(level, ranks):
    """8B parameters on 8 H100s: 4 bytes of gradient out, 28 bytes of AdamW on the host, 2 bytes of weight back.

    28: a 16-bit gradient, the FP32 master and two moments read, master and moments written, the 16-bit weight written.
    Clipping (a 16-bit gradient read twice, written once) stays on the chip. Level 1 divides all by 8.
    """
    strategy = replace(STRATEGY, shard_level=level)
    here, there = (
        plan(LLAMA, replace(RECIPE, offload_optimizer=each), strategy, EIGHT).stages[0].seconds
        for each in (False, True)
    )
    moved = 8_030_261_248 / ranks
    assert there["host transfers"] == pytest.approx(moved * (4 + 2) / LINK, rel=1e-4)
    assert here["optimizer"] < 0.05 * there["optimizer"]
    assert there["optimizer"] - moved * 28 / MEMORY == pytest.approx(0, abs=0.3 * here["optimizer"])
    same = set(here) - {"optimizer"}
    assert {cause: there[cause] for cause in same} == {cause: here[cause] for cause in same}


def test_offloaded_activations_hide_behind_the_passes_that_they_belong_to():
    """Copies that take less than the pass show a tenth (drag); of longer ones all beyond it and a tenth of it."""
    recipe, strategy = replace(RECIPE, offload_activations=0.5), replace(STRATEGY, overlap_data=False)
    estimator = Estimator(LLAMA, recipe, EIGHT)
    drag = estimator.constants.drag
    shown = 0.0
    for chunk in estimator.stages(strategy)[0]:
        for block, cost, count in chunk:
            if block.kind == "head":
                continue
            copy = 0.5 * block.kept_bytes / LINK
            for seconds in (cost.forward.seconds, cost.total_s - cost.forward.seconds):
                shown += 8 * count * (max(0.0, copy - seconds) + drag * min(copy, seconds))
    found = plan(LLAMA, recipe, strategy, EIGHT)
    assert found.stages[0].seconds["host transfers"] == pytest.approx(shown)
    assert found.step_s - plan(LLAMA, RECIPE, strategy, EIGHT).step_s == pytest.approx(shown)


def test_activations_and_optimizer_take_turns_on_the_link():
    """Both offloaded cost what each costs alone: they are never on the link in one moment, which the plan says."""
    changes = ({}, {"offload_activations": 0.5}, {"offload_optimizer": True})
    steps = [plan(LLAMA, replace(RECIPE, **each), STRATEGY, EIGHT).step_s for each in changes]
    both = plan(LLAMA, replace(RECIPE, **changes[1], **changes[2]), STRATEGY, EIGHT)
    assert both.step_s - steps[0] == pytest.approx((steps[1] - steps[0]) + (steps[2] - steps[0]))
    assert any("never asked twice at once" in each for each in both.assumptions)
