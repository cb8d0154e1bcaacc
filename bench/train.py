"""Training here against a straightforward loop, the same model on the same data: tokens per second, and their ratio.

The baseline is what public tutorials write: FP32, `F.scaled_dot_product_attention`, one projection for queries, keys
and values, the token file memory-mapped anew for each batch, AdamW as torch makes it, gradients clipped. Ours is what
`torchledger train` does: the whole loop with its loader, metrics file and events, the attention kernel that a probe at
the start found, and freed memory kept by the process; as `fp32` in that format, as `train` in the format that a probe
found, with layers or the model compiled where one found that it pays (`precision = "auto"`, `compile = "auto"`).

Each loop is a process of its own, and they take turns, a second or so each, while the others wait. What is told of a
loop is the median of its steps; a ratio is the median over the rounds of the ratio within one. The two cores of a
virtual machine are at times near to each other and at times far, for seconds or minutes: products take the same in
both, what one core writes and the other reads takes several times as long, and a step of any loop a quarter more.
Neighbouring turns mostly share a state, which runs one after the other do not.

`of peak` is what the steps do in matmuls and attention against a BF16 matmul of 2048³ in the same round. `products` is
the same of the step's own products alone, one after the other with nothing between them: what a step could reach of
that peak if all else took no time. On a CPU with AMX they reach half of it, by their shapes.

    python bench/train.py [ROUNDS]
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

VOCAB_SIZE, NUM_TOKENS = 65, 2_000_000
WARM_UP = 5  # steps before the first turn
AGAIN = 2  # steps of each turn that are not timed: caches hold what another loop left there


class Shape(NamedTuple):
    """A model and its batch: layers L, heads H, width D, tokens T in each of B sequences; steps of a turn."""

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


SHAPES = {"small": Shape(4, 4, 128, 64, 12, 25), "large": Shape(6, 6, 384, 256, 8, 3)}


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


def baseline(shape: Shape, path: Path) -> Iterator[tuple[float, float]]:
    """A loop as tutorials write it; the seconds of each step, none of them beside it."""
    torch.manual_seed(0)
    model = _Gpt(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    while True:
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
        yield time.perf_counter() - begin, 0.0


def ours(shape: Shape, path: Path, precision: str, told: dict[str, Any]) -> Iterator[tuple[float, float]]:
    """What `torchledger train` runs; seconds from one step's event to the next, and those that are not the step itself.

    Args:
        shape: the model and its batch.
        path: the tokens.
        precision: `auto` or one.
        told: where what was chosen is written.
    """
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
        spec, path, recipe, num_steps=1_000_000, runs=path.parent / precision, precision=precision, attention="auto",
        compile="no" if precision == "fp32" else "auto",
        eval_interval=0, eval_batches=1, checkpoint_interval=0, sample=SampleConfig(length=0),
        token_file=TokenFileConfig(dtype="uint16"),
    )  # fmt: skip
    keep_heap()  # as `torchledger train` does
    inside = 0.0
    call = TrainStep.__call__

    def timed(self: TrainStep, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        begin = time.perf_counter()
        result = call(self, *args, **kwargs)
        inside = time.perf_counter() - begin
        return result

    TrainStep.__call__ = timed  # type: ignore[method-assign]
    setup = resolve(config)
    told |= {"precision": setup.recipe.precision, "attention": setup.recipe.attention}
    told |= {"compiled": "" if setup.compiled == "no" else f"compiled: {setup.compiled}"}
    events = train(setup, new_run(setup))
    while True:
        begin = time.perf_counter()
        while type(next(events)).__name__ != "Step":
            pass
        whole = time.perf_counter() - begin
        yield whole, whole - inside


def peak(number_format: torch.dtype) -> float:
    """FLOP/s of a 2048³ matmul, the best of ten."""
    a, b = (torch.randn(2048, 2048).to(number_format) for _ in range(2))
    best = float("inf")
    for _ in range(10):
        begin = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - begin)
    return 2 * 2048**3 / best


def products(shape: Shape) -> float:
    """Seconds of a step's products in BF16 and nothing else, as autograd writes them: forward, and two backward each.

    Queries, keys and values are one product; scores and what attention makes of values go by head, in full.
    """
    tokens, size, by_head = shape.B * shape.T, shape.D // shape.H, shape.B * shape.H

    def drawn(*sizes: int) -> Tensor:
        return torch.randn(sizes).bfloat16()

    maps = [(shape.D, 3 * shape.D), (shape.D, shape.D), (shape.D, 4 * shape.D), (4 * shape.D, shape.D)] * shape.L
    linear = {
        sizes: (drawn(tokens, sizes[0]), drawn(sizes[1], sizes[0]), drawn(tokens, sizes[1]))
        for sizes in {*maps, (shape.D, VOCAB_SIZE)}
    }
    heads, scores = drawn(by_head, shape.T, size), drawn(by_head, shape.T, shape.T)
    begin = time.perf_counter()
    for sizes in [*maps, (shape.D, VOCAB_SIZE)]:
        x, weight, y = linear[sizes]
        _ = x @ weight.t(), y @ weight, y.t() @ x
    for _ in range(shape.L):
        _ = heads @ heads.mT, scores @ heads, scores.mT @ heads  # queries with keys, and both gradients
        _ = scores @ heads, heads @ heads.mT, scores.mT @ heads  # weights with values, and both gradients
    return time.perf_counter() - begin


def _child(what: str, name: str, path: Path) -> None:
    """Run a loop in turns: for every line that comes in, some steps, and a line with what they took."""
    shape, told = SHAPES[name], {"precision": "fp32", "attention": "fused"}
    precision = {"fp32": "fp32", "train": "auto"}.get(what, "")
    steps = ours(shape, path, precision, told) if precision else baseline(shape, path)
    for _ in range(WARM_UP):
        next(steps)
    print(json.dumps(told), flush=True)
    for line in sys.stdin:
        if line.strip() == "peak":
            print(json.dumps([peak(torch.bfloat16), min(products(shape) for _ in range(3))]), flush=True)
            continue
        for _ in range(AGAIN):
            next(steps)
        print(json.dumps([next(steps) for _ in range(shape.steps)]), flush=True)


class _Loop:
    """A process that runs a loop, and what its turns took."""

    def __init__(self, what: str, name: str, path: Path) -> None:
        self.what, self.shape = what, SHAPES[name]
        command = [sys.executable, __file__, "--child", what, name, str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.told = self._line()
        self.turns: list[list[tuple[float, float]]] = []
        self.peaks: list[tuple[float, float]] = []

    def turn(self) -> None:
        """Some steps, and in the same state of the machine its peak and the products alone."""
        self.turns.append(self.asked("steps"))
        self.peaks.append(self.asked("peak"))

    def asked(self, word: str) -> Any:
        """What it answers."""
        assert self._process.stdin is not None
        print(word, file=self._process.stdin, flush=True)
        return self._line()

    def end(self) -> None:
        """It is not asked any more."""
        self._process.kill()
        self._process.wait()

    @property
    def medians(self) -> list[float]:
        """Of each turn the median of its steps."""
        return [statistics.median(whole for whole, _ in turn) for turn in self.turns]

    @property
    def step_s(self) -> float:
        """The median of all steps."""
        return statistics.median(whole for turn in self.turns for whole, _ in turn)

    @property
    def of_peak(self) -> tuple[float, float]:
        """Of the peak, what steps reach and what their products alone do: medians over the rounds."""
        rounds = list(zip(self.medians, self.peaks, strict=True))
        flops = self.shape.step_flops
        return (
            statistics.median(flops / step_s / peak_flops_per_s for step_s, (peak_flops_per_s, _) in rounds),
            statistics.median(flops / alone_s / peak_flops_per_s for peak_flops_per_s, alone_s in self.peaks),
        )

    @property
    def overhead(self) -> float:
        """Share of a step that is beside it."""
        return statistics.median(beside / whole for turn in self.turns for whole, beside in turn)

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the loop {self.what} ended, see above")
        return json.loads(line)


def main(rounds: int) -> None:
    """Print the table."""
    found: dict[str, list[_Loop]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        np.random.default_rng(0).integers(0, VOCAB_SIZE, NUM_TOKENS).astype(np.uint16).tofile(path)
        for name in SHAPES:
            found[name] = [_Loop(what, name, path) for what in ("baseline", "fp32", "train")]
            for _ in range(rounds):
                for loop in found[name]:
                    loop.turn()
            for loop in found[name]:
                loop.end()
    peaks = [peak_flops_per_s for loops in found.values() for loop in loops for peak_flops_per_s, _ in loop.peaks]
    low, high = min(peaks) / 1e9, max(peaks) / 1e9
    print(f"{torch.get_num_threads()} threads, {rounds} rounds, BF16 matmul peak {low:.0f} to {high:.0f} GFLOP/s")
    titles = f"{'ms/step':>9}{'tok/s':>9}{'ratio':>7}{'tenths':>12}{'of peak':>9}{'products':>10}{'overhead':>10}"
    print(f"{'model':8}{'loop':10}{titles}  as")
    for name, loops in found.items():
        for loop in loops:
            print(f"{name:8}{_row(loop, loops[0])}")


def _row(loop: _Loop, first: _Loop) -> str:
    """Ratio to the first loop: its median over the rounds, and the first and the last tenth of them."""
    ratios = sorted(a / b for a, b in zip(first.medians, loop.medians, strict=True))
    tenth, shape, step_s = len(ratios) // 10, loop.shape, loop.step_s
    span = f"{ratios[tenth]:.2f}-{ratios[-1 - tenth]:.2f}"
    reached, alone = loop.of_peak
    return (
        f"{loop.what:10}{step_s * 1e3:9.1f}{shape.B * shape.T / step_s:9,.0f}{statistics.median(ratios):7.2f}{span:>12}"
        f"{reached:9.2f}{alone:10.2f}{loop.overhead:10.1%}"
        f"  {loop.told['precision']} {loop.told['attention']} {loop.told.get('compiled', '')}"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
