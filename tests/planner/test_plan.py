"""A layout in full: what follows from its seconds and bytes, and what is refused."""

from dataclasses import replace

import pytest

from torchledger.formula import count, num_parameters
from torchledger.ledger import HARDWARE_FLOPS, MODEL_FLOPS
from torchledger.machine import get, parse_cluster
from torchledger.machine.errors import NoPeak
from torchledger.planner.constants import Constants, default_constants
from torchledger.planner.errors import LayoutRefused, PlanError
from torchledger.planner.estimator import Estimator
from torchledger.planner.outcome import PARTS
from torchledger.planner.plan import interval_s, peak_of, plan
from torchledger.planner.terms import RunTerms
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, Recipe, Strategy, presets

SPEC = ModelSpec("small", 1024, 1024, 8, 512, AttentionSpec(8), MlpSpec(2048))
RECIPE = Recipe(batch_size=64, sequence_length=1024, precision="bf16", num_tokens=10**9)
STRATEGY = Strategy(data_parallel=4, tensor_parallel=2, micro_batch_size=4)
CLUSTER = parse_cluster("h100x8")
#: No losses, so that the wall clock is the steps.
TERMS = RunTerms(goodput=1.0)


def test_mfu_is_model_flops_over_the_peak_of_all_chips():
    """MFU = FLOPs of a step / (seconds · chips · dense bf16 peak); HFU counts what recompute runs again."""
    recipe = replace(RECIPE, recompute="full")
    found = plan(SPEC, recipe, STRATEGY, CLUSTER)
    whole = count(SPEC, recipe)
    peak = CLUSTER.chip.peak("bf16") * 8
    assert found.model_flops == whole.under(MODEL_FLOPS).flops
    assert found.hardware_flops == whole.under(HARDWARE_FLOPS).flops > found.model_flops
    assert found.mfu == pytest.approx(found.model_flops / (found.step_s * peak))
    assert found.hfu == pytest.approx(found.hardware_flops / (found.step_s * peak))


def test_tokens_per_second_are_the_batch_over_the_step():
    """All replicas' sequences, once, however they are cut into micro-batches."""
    found = plan(SPEC, RECIPE, STRATEGY, CLUSTER)
    assert found.tokens_per_s == pytest.approx(64 * 1024 / found.step_s)


def test_days_are_tokens_over_tokens_per_second():
    """A run of 1e9 tokens has ceil(1e9 / (64·1024)) steps; without losses the wall clock is theirs."""
    found = plan(SPEC, RECIPE, STRATEGY, CLUSTER, terms=TERMS)
    steps = -(-(10**9) // (64 * 1024))
    assert found.days == pytest.approx(steps * found.step_s / 86400)
    assert found.days == pytest.approx(10**9 / found.tokens_per_s / 86400, rel=1e-4)


def test_money_is_the_price_of_all_chip_hours():
    """8 chips, 24 hours a day, 2.80 an hour each."""
    found = plan(SPEC, RECIPE, STRATEGY, CLUSTER, terms=replace(TERMS, price_per_chip_hour=2.80))
    assert found.chip_hours == pytest.approx(8 * 24 * found.days)
    assert found.money == pytest.approx(2.80 * found.chip_hours)


def test_energy_and_carbon_are_of_the_whole_wall_clock():
    """700 W · 0.5 · PUE 1.2 for 8 chips; 400 g of CO2 a kWh."""
    terms = replace(TERMS, tdp_share=0.5, host_w=0.0, pue=1.2, carbon_g_per_kwh=400.0)
    found = plan(SPEC, RECIPE, STRATEGY, CLUSTER, terms=terms)
    assert found.energy_j == pytest.approx(700 * 0.5 * 1.2 * 8 * found.days * 86400)
    assert found.carbon_kg == pytest.approx(found.energy_j / 3.6e6 * 400 / 1000)


def test_losses_make_the_wall_clock_longer_and_the_step_no_longer():
    """Half of the wall clock lost is twice the days."""
    whole, half = (plan(SPEC, RECIPE, STRATEGY, CLUSTER, terms=RunTerms(goodput=each)) for each in (1.0, 0.5))
    assert half.days == pytest.approx(2 * whole.days)
    assert half.step_s == whole.step_s
    assert sum(half.losses.values()) == pytest.approx(0.5)


def test_checkpoints_hold_every_expert_whatever_the_layout():
    """12 bytes a parameter of the whole model, also where a rank holds an eighth of the experts."""
    mixture = replace(SPEC, moe=MoeSpec(8, 2, 512))
    said = {
        next(each for each in found.assumptions if each.startswith("a checkpoint of"))
        for strategy in (Strategy(data_parallel=8), Strategy(data_parallel=8, expert_parallel=8))
        for found in [plan(mixture, RECIPE, strategy, CLUSTER)]
    }
    assert len(said) == 1
    assert f"{12 * num_parameters(mixture) / 1e6:.0f}" in said.pop()


def test_what_is_unknown_is_nothing():
    """Without tokens no days, without a price no money, without a grid no carbon; never zero."""
    found = plan(SPEC, replace(RECIPE, num_tokens=0), STRATEGY, CLUSTER)
    assert (found.days, found.chip_hours, found.money, found.energy_j, found.carbon_kg) == (None,) * 5
    known = plan(SPEC, RECIPE, STRATEGY, CLUSTER)
    assert (known.money, known.carbon_kg) == (None, None)
    assert known.days is not None


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        (RunTerms(pue=0.5), "PUE"),
        (RunTerms(tdp_share=3.0), "share"),
        (RunTerms(carbon_g_per_kwh=-1.0), "carbon"),
        (RunTerms(evaluation=-1.0), "evaluation"),
        (RunTerms(goodput=2.0), "goodput"),
    ],
)
def test_terms_that_cannot_be_are_refused_without_tokens_too(terms, told):
    """A run of unknown length costs nothing known, and a PUE of 0.5 is wrong all the same."""
    with pytest.raises(PlanError, match=told):
        plan(SPEC, replace(RECIPE, num_tokens=0), STRATEGY, CLUSTER, terms=terms)


@pytest.mark.parametrize("offload", [{"offload_optimizer": True}, {"offload_activations": 0.5}])
def test_the_host_that_offload_rests_on_is_said(offload):
    """Seconds of offload are those of a typical host: the answer says which, and only then."""
    told = "host: two Xeon 8480C for 8 chips, PCIe 5"
    found = plan(SPEC, replace(RECIPE, **offload), STRATEGY, CLUSTER)
    assert any(each.startswith(told) for each in found.assumptions)
    assert found.slowest.seconds["host transfers"] > 0
    assert not any(each.startswith("host:") for each in plan(SPEC, RECIPE, STRATEGY, CLUSTER).assumptions)


def test_a_step_of_any_number_of_micro_batches_is_answered():
    """10^12 sequences: seconds in proportion to the micro-batches, no time line, and a line that says so."""
    many = plan(SPEC, replace(RECIPE, batch_size=4 * 10**12, num_tokens=0), STRATEGY, CLUSTER)
    half = plan(SPEC, replace(RECIPE, batch_size=2 * 10**12, num_tokens=0), STRATEGY, CLUSTER)
    assert many.step_s == pytest.approx(2 * half.step_s, rel=1e-6)
    assert [stage.time_line for stage in many.stages] == [()]
    assert any(each.startswith("no time line: 250,000,000,000 forward passes") for each in many.assumptions)
    assert not any(each.startswith("no time line") for each in plan(SPEC, RECIPE, STRATEGY, CLUSTER).assumptions)


def test_parts_of_a_stage_add_up_to_its_peak():
    """Memory by part is named as `PARTS` names it, and the fullest stage is the plan's peak."""
    found = plan(SPEC, RECIPE, Strategy(data_parallel=2, pipeline_parallel=4, micro_batch_size=2), CLUSTER)
    for stage in found.stages:
        assert set(stage.memory.parts) <= set(PARTS)
        assert sum(stage.memory.parts.values()) == stage.memory.peak_bytes
    assert found.peak_bytes == max(stage.memory.peak_bytes for stage in found.stages)
    assert found.fullest.memory.peak_bytes == found.peak_bytes


def test_a_layout_fits_where_its_fullest_rank_has_room():
    """8B parameters with AdamW on eight chips: replicas do not fit in 80 GB, shards do; unknown memory says nothing."""
    model, recipe = presets.get("llama-3-8b"), Recipe(batch_size=8, sequence_length=2048, precision="bf16")
    whole = Strategy(stack="fsdp2", data_parallel=8, micro_batch_size=1)
    assert plan(model, recipe, whole, CLUSTER).fits is False
    assert plan(model, recipe, replace(whole, shard_level=3), CLUSTER).fits is True
    unknown = replace(CLUSTER.chip, memory_bytes_nominal=None, memory_bytes_reported=None)
    found = plan(model, recipe, whole, replace(CLUSTER, chip=unknown))
    assert found.capacity_bytes is None
    assert found.fits is None


def test_the_slowest_stage_is_the_one_that_waits_least():
    """The middle stage of 1, 1, 5 and 1 layers waits least and holds most layers."""
    strategy = Strategy(data_parallel=2, pipeline_parallel=4, micro_batch_size=2, stage_layers=(1, 1, 5, 1))
    assert plan(SPEC, RECIPE, strategy, CLUSTER).slowest.stage.index == 2


def test_constants_that_know_their_spread_give_an_interval():
    """Nine of ten measured steps lie within exp(±1.645 sigma)."""
    known = replace(default_constants(CLUSTER.chip), sigma=0.1)
    found = plan(SPEC, RECIPE, STRATEGY, CLUSTER, constants=known)
    assert found.interval_s == (
        pytest.approx(found.step_s * 2.718281828**-0.1644854, rel=1e-6),
        pytest.approx(found.step_s * 2.718281828**0.1644854, rel=1e-6),
    )
    assert plan(SPEC, RECIPE, STRATEGY, CLUSTER, constants=replace(known, sigma=None)).interval_s is None
    assert interval_s(1.0, Constants()) is None


def test_a_layout_that_cannot_be_is_refused_with_every_reason():
    """Seven chips, eight heads over three ranks: both are told."""
    with pytest.raises(LayoutRefused) as error:
        plan(SPEC, RECIPE, Strategy(tensor_parallel=3), parse_cluster("h100x7"))
    text = str(error.value)
    assert "on 7 chips" in text
    assert "tensor_parallel 3 does not divide 8 attention heads" in text
    assert len(text.splitlines()) >= 2


def test_an_estimator_of_the_same_question_may_be_shared():
    """What it remembers changes nothing of the plan."""
    shared = Estimator(SPEC, RECIPE, CLUSTER)
    shared.estimate(Strategy(data_parallel=8, micro_batch_size=1))
    assert plan(SPEC, RECIPE, STRATEGY, CLUSTER, estimator=shared) == plan(SPEC, RECIPE, STRATEGY, CLUSTER)


def test_every_assumption_is_told_once():
    """Stack, precision where the stack means another, constants, convention; layouts that reach over islands."""
    recipe = replace(RECIPE, precision="bf16")
    found = plan(SPEC, recipe, replace(STRATEGY, stack="megatron"), CLUSTER)
    assert len(set(found.assumptions)) == len(found.assumptions)
    text = "\n".join(found.assumptions)
    for each in ("stack: megatron", "bf16 means bf16-master there", "time: default constants", "recompute left out"):
        assert each in text


@pytest.mark.parametrize(
    ("precision", "number_format"),
    [("bf16-master", "bf16"), ("fp16", "fp16"), ("mxfp8", "fp8"), ("fp8", "fp8"), ("fp32", "fp32")],
)
def test_mfu_divides_by_the_peak_of_the_matmuls_format(precision, number_format):
    """Master weights change no peak; scaled formats run at their element's."""
    chip = get("h100-sxm")
    assert peak_of(chip, Recipe(precision=precision)) == chip.peak(number_format)


def test_a_chip_without_the_format_has_no_peak():
    """FP4 on an H100 is an error, no other format's peak."""
    with pytest.raises(NoPeak):
        peak_of(get("h100-sxm"), Recipe(precision="nvfp4"))
