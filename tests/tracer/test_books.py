import torch
from torch import nn

from torchledger.tracer import Recorder, trace


def test_equal_layers_are_equal_lines():
    """Three equal layers: three lines by path, one when folded, run three times."""
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(3)))
    ledger = trace(model, torch.ones(2, 4), loss=lambda y, _: y.mean()).ledger.where(kind="matmul", phase="forward")
    assert [(line.module, line.times) for line in ledger] == [("0", 1), ("1", 1), ("2", 1)]
    (folded,) = ledger.folded()
    assert (folded.module, folded.times, folded.shape) == ("*", 3, (("b", 1), ("m", 2), ("n", 4), ("k", 4)))


def test_bytes_kept_stand_on_the_line_that_made_them():
    """Sigmoid keeps its output; the sum of all lines is what the timeline keeps."""
    seen = trace(nn.Sigmoid(), torch.ones(8, requires_grad=True), loss=lambda y, _: y.sum())
    kept = {line.op: line.work.bytes_kept for line in seen.ledger.where(phase="forward")}
    assert kept == {"sigmoid": 8 * 4, "sum": 4}
    assert seen.ledger.total.bytes_kept == seen.kept_bytes


def test_lines_of_building_are_left_out():
    with Recorder() as recorder:
        with recorder.phase("build"):
            torch.ones(4) + 1
        torch.ones(4) * 2
    assert [line.op for line in recorder.trace().ledger] == ["fill", "mul"]


def test_every_line_is_from_the_trace_and_has_a_source():
    ledger = trace(nn.Linear(4, 4), torch.ones(2, 4), loss=lambda y, _: y.mean()).ledger
    assert {line.origin for line in ledger} == {"trace"}
    forward = {line.source.rpartition(":")[0] for line in ledger.where(phase="forward")}
    assert "" not in forward
