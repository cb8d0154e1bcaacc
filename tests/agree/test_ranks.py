"""Many ranks against one process, and what they send: by formula, by looking at one rank, and as counted."""

import fcntl
import itertools
from dataclasses import replace

import pytest
import torch
import torch.multiprocessing
from ranked_dropout import DrawnByRanks
from ranked_heads import HEAD_CASES, RARE_HEAD_CASES
from ranked_shards import RARE_SHARD_CASES, SHARD_CASES
from ranked_steps import CASES, UNEVENLY, rank_of_all, sent, steps
from ranked_tensor import RARELY, TENSOR_CASES

from torchledger.planner.rank_ledger import rank_ledger
from torchledger.tracer import trace_step
from torchledger.trainer.layout import local_recipe
from torchledger.trainer.step import build_step, example_batch

RARE = {*RARELY, *RARE_HEAD_CASES, *RARE_SHARD_CASES}
#: Names of all cases; of those that split matrices some stand for the others wherever proofs are left out.
NAMES = [pytest.param(name, marks=pytest.mark.proof) if name in RARE else name for name in CASES]


@pytest.fixture(scope="module")
def ranked(tmp_path_factory, request, worker_id):
    """What every rank of every case that is asked for gave. One worker of the tests does it for all."""
    items = (item for item in request.session.items if item.path == request.path)
    asked = {item.callspec.params["name"] for item in items if hasattr(item, "callspec")}
    base, found = tmp_path_factory.getbasetemp(), {}
    shared = base if worker_id == "master" else base.parent
    with (shared / "ranks.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for size in sorted({CASES[name][0] for name in asked}):
            folder = shared / f"ranks-{size}"
            if not folder.exists():
                folder.mkdir()
                torch.multiprocessing.spawn(rank_of_all, (size, str(folder), asked), nprocs=size)
            each = [torch.load(folder / str(rank), weights_only=True) for rank in range(size)]
            found |= {name: [rank[name] for rank in each] for name in each[0]}
    return found


@pytest.fixture
def alone(one_thread):
    """The same step in one process, each of whose micro-batches is what one rank ran."""

    def run(name):
        _, spec, recipe, strategy = CASES[name]
        mine = local_recipe(recipe, strategy)
        times = strategy.data_parallel * mine.accumulation_steps
        if recipe.seed == UNEVENLY.seed and not recipe.load_balance:
            times = 1  # one batch is what several with few targets have to be
        whole = replace(recipe, accumulation_steps=times)
        if not spec.has_dropout:
            return steps(spec, whole)
        drawn = DrawnByRanks(whole, strategy)
        with drawn.in_force():
            return steps(spec, replace(whole, recompute="none"), begin=drawn.begin)

    return run


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", NAMES)
def test_losses_and_norms_are_those_of_one_process(ranked, alone, name):
    """Within rounding, and the same on every rank: sums are cut otherwise, nothing is left out or counted twice."""
    told, weights, _ = alone(name)
    recipe = CASES[name][2]
    tolerance = 2e-2 if recipe.precision != "fp32" else 1e-5
    if recipe.optimizer.kind == "muon":  # it makes matrices orthogonal in BF16
        tolerance = 1e-4
    for rank_told, rank_weights, _ in ranked[name]:
        assert rank_told == ranked[name][0][0]
        for (loss, norm), (rank_loss, rank_norm) in zip(told, rank_told, strict=True):
            assert rank_loss == pytest.approx(loss, rel=tolerance)
            assert (norm is None) == (rank_norm is None)
            assert norm is None or rank_norm == pytest.approx(norm, rel=tolerance)
        assert {key: value.shape for key, value in rank_weights.items()} == {k: v.shape for k, v in weights.items()}


@pytest.mark.parametrize(
    "name",
    [
        "replicas",
        "replicas in bf16",
        "replicas in fp8",
        "replicas of a mixture",
        "replicas of adapters",
        "shards under 8-bit averages",
    ],
)
def test_two_replicas_are_one_process_bit_for_bit(ranked, alone, name):
    """A mean of two is exact halves added up, as two micro-batches are: losses, norms and weights to the last bit."""
    told, weights, _ = alone(name)
    rank_told, rank_weights, _ = ranked[name][0]
    assert rank_told == told
    assert all(torch.equal(value, rank_weights[key]) for key, value in weights.items())


@pytest.mark.parametrize("name", NAMES)
def test_bytes_sent_are_equal_by_formula_by_looking_and_as_counted(ranked, name):
    """Every collective of a step by its name, to the byte, on every rank; the formula is of the one that holds most.

    And of all cases but the oldest, their FLOPs.
    """
    size, spec, recipe, strategy = CASES[name]
    mine = local_recipe(recipe, strategy)

    def build():
        step, numbers = build_step(spec, mine, initialized=False, strategy=strategy), itertools.count()
        batch = example_batch(mine)
        return lambda: step(batch, next(numbers))

    counted = [each[2] for each in ranked[name]]
    first, last = (trace_step(build, world_size=size, rank=rank) for rank in (0, size - 1))
    assert [sent(first), sent(last)] == [counted[0], counted[-1]]
    formula = rank_ledger(spec, recipe, strategy, kernels="cpu")
    assert sent(formula) == pytest.approx(counted[0])
    if name in {*TENSOR_CASES, *HEAD_CASES, *SHARD_CASES, *RARE_SHARD_CASES}:
        assert formula.flops == first.ledger.flops
