import math

import pytest

from torchledger.ledger import Difference, Finding, Ledger, Line, RunRecord, Work

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
