"""Peaks of transformers' models predicted on no memory: equal on real tensors, and to the allocator's byte here.

Tensor bytes are equal on every machine. With what each kernel was probed to hold they are the allocator's peak on this
machine.
"""

import pytest

pytest.importorskip("transformers")

from zoo.peaks import missed, runs

from torchledger.meter import allocations, probe
from torchledger.tracer import Recorder, trace_step

RUNS = tuple(runs())
#: A handful for every day, the rest under `make proof`.
DAILY = {0, 9, 25, 42, 60, 67}


def _of_real_tensors(run):
    with Recorder() as recorder:
        with recorder.phase("build"):
            step = run.build()
        step()
        step()
    return recorder.trace()


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(run, id=str(run), marks=[] if number in DAILY else [pytest.mark.proof])
        for number, run in enumerate(RUNS)
    ],
)
def test_the_peak_is_that_of_real_tensors_and_of_the_allocator(run):
    """Fake and real tensors peak at the same bytes; with probed scratch that is the allocator's peak, to the byte."""
    fake = trace_step(run.build)
    run.twice()  # one-time allocations of the libraries first
    assert fake.peak().peak_bytes == _of_real_tensors(run).peak().peak_bytes
    scratch = probe(call.signature for call in fake.calls)
    assert scratch.skipped == {}
    predicted_bytes = fake.timeline.peak(internal=scratch.by_call(fake)).peak_bytes
    assert predicted_bytes == allocations(run.twice).peak_bytes


@pytest.mark.proof
@pytest.mark.parametrize("run", list(missed()), ids=str)
def test_a_known_miss(run):
    """The reason stands in `MISSES`; the prediction is above what runs, and under 5 % of it."""
    real_bytes = _of_real_tensors(run).peak().peak_bytes
    assert 1 < trace_step(run.build).peak().peak_bytes / real_bytes < 1.05


def test_the_proof_is_wide():
    """At least 60 runs: both precisions, every optimizer kernel, checkpointing, accumulation, on 50 models."""
    assert len(set(RUNS)) == len(RUNS) >= 60
    assert len({run.name for run in RUNS}) >= 50
    assert {run.precision for run in RUNS} == {"fp32", "bf16"}
    assert {run.optimizer for run in RUNS} == {"loop", "foreach", "fused", "sgd"}
    assert {run.checkpointing for run in RUNS} == {True, False}
    assert {run.accumulation for run in RUNS} == {1, 2}
