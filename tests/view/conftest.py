import math
from dataclasses import fields

import pytest

from torchledger.ledger import Difference, Finding, Ledger, Line, RunRecord, Work
from torchledger.machine import parse_cluster
from torchledger.planner.outcome import Plan, Slot, StageMemory, StagePlan
from torchledger.planner.stage import Block, Stage
from torchledger.spec import Recipe, Strategy, presets

B, T, D, F, V, L = 2, 8, 4, 16, 10, 3


@pytest.fixture
def ledger():
    up = Work.of_flops(
        2 * B * T * D * F, bytes_read=4 * (B * T * D + D * F), bytes_written=4 * B * T * F, bytes_kept=64
    )
    head = Work.of_flops(2 * B * T * D * V)
    return Ledger.of(
        [
            Line("layers.*.mlp.up", "matmul", up, "matmul", times=L),
            Line("layers.*.mlp.up", "matmul", up, "matmul", "backward", "input", times=L),
            Line("layers.*.mlp.up", "matmul", up, "matmul", "backward", "weight", times=L),
            Line("layers.*.mlp_norm", "rms_norm", Work(transcendentals=B * T), "normalization", times=L),
            Line("head", "matmul", head, "matmul"),
            Line("", "adamw", Work(bytes_read=100), "optimizer", "optimizer"),
        ],
        assumptions=["the toy of the tests"],
    )


@pytest.fixture
def record(ledger):
    return RunRecord(
        name="toy <run> & co",
        config={"model": {"num_layers": L, "hidden_size": D}},
        environment={"python": "3.11"},
        prediction={"step_flops": ledger.flops, "step_s": 1.83, "initial_loss": math.log(V)},
        metrics=(
            {"step": 0, "loss": 2.3, "tokens_per_s": 100.0, "mfu": 0.4},
            {"step": 1, "loss": math.nan, "validation_loss": 2.2},
        ),
        differences=(
            Difference("step_flops", "FLOP", ledger.flops, ledger.flops, 0),
            Difference("step_s", "s", 1.83, 3.0, 0.25, "slower"),
        ),
        ledger=ledger,
        memory={
            "peak_bytes": 2**30,
            "parts_bytes": {"parameters": 2**29, "activations": 2**29},
            "outline": [[0, 5], [1, 9]],
        },
        samples=("def f():\n    return '</script><script>alert(1)</script>'",),
        findings=(Finding("data", "note", "train.bin", "1.4 epochs"),),
    )


def _block(name, kind, num_parameters):
    """A block of the toy; what no test here looks at is 0."""
    zero = {each.name: 0 for each in fields(Block)}
    mine = {"name": name, "kind": kind, "num_parameters": num_parameters, "kept_bytes": 64 * 2**20}
    return Block(**{**zero, **mine, "lines": (), "activations": ()})


def _stage_plan(index, num_stages, num_micro_batches, *, forward_s, backward_s, end_s):
    """One stage under GPipe: all forward passes one after the other, then all backward passes."""
    turn_s = (num_stages + num_micro_batches - 1) * forward_s
    all_s = turn_s + (num_stages + num_micro_batches - 1) * backward_s
    forward = (
        Slot((index + m) * forward_s, (index + m + 1) * forward_s, "forward", m) for m in range(num_micro_batches)
    )
    first = num_stages - 1 - index
    backward = (
        Slot(turn_s + (first + m) * backward_s, turn_s + (first + m + 1) * backward_s, "backward", m)
        for m in range(num_micro_batches)
    )
    busy_s = num_micro_batches * (forward_s + backward_s)
    blocks = [(_block("layer", "layer", 100), 3)]
    blocks = [(_block("embedding", "embedding", 1000), 1), *blocks] if index == 0 else blocks
    blocks = [*blocks, (_block("head", "head", 1000), 1)] if index == num_stages - 1 else blocks
    return StagePlan(
        stage=Stage(index, (tuple(blocks),), (num_micro_batches,)),
        ledger=Ledger(),
        memory=StageMemory(
            {"parameters": (2 + (index == 0)) * 2**30, "activations": 5 * 2**30 + 12345, "context": 2**29}
        ),
        seconds={
            "matmul": 0.7 * busy_s,
            "attention": 0.2 * busy_s,
            "memory-bound operations": 0.1 * busy_s,
            "pipeline bubble": all_s - busy_s,
            "optimizer": end_s,
        },
        time_line=(*forward, *backward, Slot(all_s, all_s + end_s, "optimizer")),
    )


@pytest.fixture
def plan():
    """Four stages, eight micro-batches under GPipe, numbers small enough to follow."""
    P, M, forward_s, backward_s, end_s = 4, 8, 0.1, 0.2, 0.05
    stages = tuple(
        _stage_plan(index, P, M, forward_s=forward_s, backward_s=backward_s, end_s=end_s) for index in range(P)
    )
    step_s = (P + M - 1) * (forward_s + backward_s) + end_s
    recipe = Recipe(batch_size=2 * M, sequence_length=1024, precision="bf16-master", num_tokens=10**9)
    return Plan(
        spec=presets.get("gpt2"),
        recipe=recipe,
        strategy=Strategy("megatron", data_parallel=2, pipeline_parallel=P, schedule="gpipe", micro_batch_size=1),
        cluster=parse_cluster("h100x8"),
        stages=stages,
        step_s=step_s,
        interval_s=(0.9 * step_s, 1.1 * step_s),
        model_flops=1e15,
        hardware_flops=1.1e15,
        mfu=1e15 / step_s / (8 * 989.4e12),
        hfu=1.1e15 / step_s / (8 * 989.4e12),
        tokens_per_s=2 * M * 1024 / step_s,
        capacity_bytes=79 * 2**30,
        days=recipe.num_steps * step_s / 86400 / (1 - 0.02),
        chip_hours=8 * recipe.num_steps * step_s / 3600 / (1 - 0.02),
        money=None,
        energy_j=None,
        carbon_kg=None,
        losses={"restarts": 0.02},
        assumptions=("made by hand for the tests",),
    )
