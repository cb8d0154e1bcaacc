"""Training here against a straightforward loop, the same model on the same data: tokens per second, and their ratio.

The baseline is what public tutorials write: FP32, `F.scaled_dot_product_attention`, one projection for queries, keys
and values, the token file memory-mapped anew for each batch, AdamW as torch makes it, gradients clipped. Ours is what
`torchledger train` does: the whole loop with its loader, metrics file and events, the format and the attention kernel
that a probe at the start found, and freed memory kept by the process. Each run is a process of its own, in turn, so
that a slow minute of the machine falls on both; the middle run of each counts, and the best matmul rate found between.
On the two cores of a virtual machine a process was found in one of two states for all of its life, 1.3 apart: products
take the same in both, what streams through memory twice as long. Hence the rounds: of three the middle one may be in
the other state than the baseline's.

    python bench/train.py [ROUNDS]
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

VOCAB_SIZE, NUM_TOKENS = 65, 2_000_000
WARM_UP = 5


class Shape(NamedTuple):
    """A model and its batch: layers L, heads H, width D, tokens T in each of B sequences; steps that are timed."""

    L: int
    H: int
    D: int
    T: int
    B: int
    steps: int

    @property
    def step_flops(self) -> int:
        """Matmuls and attention in full, forward and twice that backward: what both loops do."""
        weights = self.L * 12 * self.D**2 + VOCAB_SIZE * self.D
        return 3 * self.B * self.T * (2 * weights + self.L * 4 * self.T * self.D)


SHAPES = {"small": Shape(4, 4, 128, 64, 12, 150), "large": Shape(6, 6, 384, 256, 8, 16)}


class _Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        D = shape.D
        self.H = shape.H
        self.norm1, self.norm2 = nn.LayerNorm(D, bias=False), nn.LayerNorm(D, bias=False)
        self.projection, self.output = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
        self.up, self.down = nn.Linear(D, 4 * D, bias=False), nn.Linear(4 * D, D, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        heads = (
            each.view(B, T, self.H, D // self.H).transpose(1, 2) for each in self.projection(self.norm1(x)).split(D, 2)
        )
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).contiguous().view(B, T, D))
        out: Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return out


class _Gpt(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB_SIZE, shape.D), nn.Embedding(shape.T, shape.D)
        self.blocks = nn.ModuleList(_Block(shape) for _ in range(shape.L))
        self.norm, self.head = nn.LayerNorm(shape.D, bias=False), nn.Linear(shape.D, VOCAB_SIZE, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).view(-1, VOCAB_SIZE), targets.view(-1))


def baseline(shape: Shape, path: Path) -> dict[str, Any]:
    """Seconds of the steps of a loop as tutorials write it."""
    torch.manual_seed(0)
    model = _Gpt(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    seconds = []
    for _ in range(shape.steps + WARM_UP):
        begin = time.perf_counter()
        data = np.memmap(path, dtype=np.uint16, mode="r")
        starts = torch.randint(len(data) - shape.T, (shape.B,)).tolist()
        x, y = (
            torch.stack([torch.from_numpy(data[i + k : i + k + shape.T].astype(np.int64)) for i in starts])
            for k in (0, 1)
        )
        loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - begin)
    return {"step_s": statistics.median(seconds[WARM_UP:])}


def ours(shape: Shape, path: Path, precision: str) -> dict[str, Any]:
    """Median seconds from one step's event to the next, and the part of them that is not the step itself."""
    from torchledger.meter import keep_heap
    from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, NormSpec, OptimizerSpec, PositionSpec, Recipe
    from torchledger.trainer import RunConfig, SampleConfig, new_run, resolve, train
    from torchledger.trainer.run_config import TokenFileConfig
    from torchledger.trainer.step import TrainStep

    spec = ModelSpec(
        "bench", VOCAB_SIZE, shape.T, shape.L, shape.D, AttentionSpec(shape.H),
        MlpSpec(4 * shape.D, kind="plain", activation="gelu"), NormSpec(kind="layer"), PositionSpec(kind="learned"),
        tied_embeddings=True,
    )  # fmt: skip
    recipe = Recipe(batch_size=shape.B, sequence_length=shape.T, optimizer=OptimizerSpec(learning_rate=1e-3))
    config = RunConfig(
        spec, path, recipe, num_steps=shape.steps + WARM_UP, runs=path.parent, precision=precision, attention="auto",
        eval_interval=0, eval_batches=1, checkpoint_interval=0, sample=SampleConfig(length=0),
        token_file=TokenFileConfig(dtype="uint16"),
    )  # fmt: skip
    keep_heap()  # as `torchledger train` does
    inside: list[float] = []
    call = TrainStep.__call__

    def timed(self: TrainStep, *args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        result = call(self, *args, **kwargs)
        inside.append(time.perf_counter() - begin)
        return result

    TrainStep.__call__ = timed  # type: ignore[method-assign]
    setup = resolve(config)
    ends = [time.perf_counter() for event in train(setup, new_run(setup)) if type(event).__name__ == "Step"]
    whole = [b - a for a, b in itertools.pairwise(ends)][WARM_UP - 1 :]
    beside = [w - i for w, i in zip(whole, inside[WARM_UP:], strict=True)]
    return {
        "step_s": statistics.median(whole),
        "overhead": statistics.median(beside) / statistics.median(whole),
        "precision": setup.recipe.precision,
        "attention": setup.recipe.attention,
    }


def peak(number_format: torch.dtype) -> dict[str, Any]:
    """FLOP/s of a 2048³ matmul, the best of ten."""
    a, b = (torch.randn(2048, 2048).to(number_format) for _ in range(2))
    best = float("inf")
    for _ in range(10):
        begin = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - begin)
    return {"flops_per_s": 2 * 2048**3 / best}


def _one(what: str, shape: str, path: str) -> dict[str, Any]:
    if what == "baseline":
        return baseline(SHAPES[shape], Path(path))
    if what == "peak":
        return peak(torch.bfloat16)
    return ours(SHAPES[shape], Path(path), "fp32" if what == "fp32" else "auto")


def _apart(what: str, shape: str, path: Path) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", what, shape, str(path)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    told: dict[str, Any] = json.loads(out.splitlines()[-1])
    return told


def main(rounds: int) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        np.random.default_rng(0).integers(0, VOCAB_SIZE, NUM_TOKENS).astype(np.uint16).tofile(path)
        runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
        peaks = []
        for _ in range(rounds):
            for shape in SHAPES:
                for what in ("baseline", "fp32", "train"):
                    runs.setdefault((shape, what), []).append(_apart(what, shape, path))
            peaks.append(_apart("peak", "small", path)["flops_per_s"])
    bf16_peak = max(peaks)
    print(f"{torch.get_num_threads()} threads, {rounds} rounds, BF16 matmul peak {bf16_peak / 1e9:.0f} GFLOP/s")
    print(f"{'model':8}{'loop':12}{'ms/step':>10}{'tok/s':>10}{'ratio':>8}{'of peak':>9}{'overhead':>10}  as")
    for (shape, what), found in runs.items():
        middle = sorted(found, key=lambda run: run["step_s"])[len(found) // 2]
        first = statistics.median(run["step_s"] for run in runs[shape, "baseline"])
        step_s, sizes = middle["step_s"], SHAPES[shape]
        print(
            f"{shape:8}{what:12}{step_s * 1e3:10.1f}{sizes.B * sizes.T / step_s:10,.0f}{first / step_s:8.2f}"
            f"{sizes.step_flops / step_s / bf16_peak:9.2f}"
            f"{'' if 'overhead' not in middle else format(middle['overhead'], '.1%'):>10}"
            f"  {middle.get('precision', 'fp32')} {middle.get('attention', 'fused')}"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(_one(*sys.argv[2:5])))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
