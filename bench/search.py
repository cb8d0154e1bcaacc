"""Layouts considered a second by `plan --search`, and one by one, beside what peers were measured at. CPU seconds.

Two rates are told apart. *Considered*: all points of the grid over the time of the search, which rules most of them out
by shape rules and bounds that provably lose none of the best. *Evaluated one by one*: the same cost model asked for
drawn layouts without any bound, which is what a search by enumeration would reach.

Peers do not cut: their rates are evaluations. They were measured with their own examples on the same kind of machine (2
shared cores, Python 3.11, no GPU) and are written down here, not run: Calculon's README search of 530B on 5,128 A100
(8,112 configurations in 80.2 s) and a random sample of GPT-3 175B on 64 A100 (9,108 in 39.4 CPU seconds); llm-analysis
as a library.

    python bench/search.py
"""

from __future__ import annotations

import random
import time

from torchledger import spec as specs
from torchledger.machine import parse_cluster
from torchledger.planner.estimator import Estimator
from torchledger.planner.search import search
from torchledger.planner.search_costs import LayoutCosts
from torchledger.planner.search_grid import Axes, Grid
from torchledger.spec import Recipe, Strategy

#: Model, cluster, sequences, their length, stack.
QUESTIONS = (
    ("gpt-3-175b", "a100x64", 1536, 2048, "megatron"),
    ("gpt-3-175b", "a100x64", 1536, 2048, "torchledger"),
    ("llama-3.1-405b", "h100x16384", 512, 8192, "megatron"),
    ("llama-3.1-405b", "h100x16384", 2048, 8192, "megatron"),
)
#: Layouts a second, as measured.
PEERS = {"Calculon, README search": 8112 / 80.2, "Calculon, sample of a grid": 9108 / 39.4, "llm-analysis": 1853.0}
DRAWS = 3000


def searched(name: str, cluster: str, batch: int, length: int, stack: str) -> tuple[int, int, float, float]:
    """Points, points evaluated, CPU and wall seconds of one search."""
    model, machine, base = specs.load(name), parse_cluster(cluster), Strategy(stack=stack)
    recipe = Recipe(batch_size=batch, sequence_length=length, precision="bf16")
    began, wall = time.process_time(), time.perf_counter()
    costs = LayoutCosts(Estimator(model, recipe, machine), base, Axes())
    found = search(model, (recipe,), machine, lambda _recipe, _cluster: costs, base=base)
    return found.num_points, found.num_evaluated, time.process_time() - began, time.perf_counter() - wall


def evaluated() -> float:
    """Layouts a second, one by one in random order, each distinct block costed when it first comes."""
    name, cluster, batch, length, stack = QUESTIONS[0]
    model, machine, base = specs.load(name), parse_cluster(cluster), Strategy(stack=stack)
    recipe = Recipe(batch_size=batch, sequence_length=length, precision="bf16")
    costs, grid = LayoutCosts(Estimator(model, recipe, machine), base, Axes()), Grid(model, batch, 64, base, Axes())
    draw, splits, points = random.Random(0), list(grid.splits()), []
    while len(points) < DRAWS:
        split, size = draw.choice(splits), draw.choice(grid.micro_batch_sizes)
        shape, order = draw.choice(grid.shapes(split)), draw.choice(grid.orders(split))
        strategy = grid.strategy(split, size, shape, order, draw.choice(grid.shardings(split)))
        if not list(costs.refusals(strategy)):
            points.append((strategy, shape.recompute))
    began = time.process_time()
    for strategy, recompute in points:
        costs.estimate(strategy, recompute)
    return DRAWS / (time.process_time() - began)


def main() -> None:
    """Print one row a question, then the peers."""
    print(f"{'question':46}{'layouts':>12}{'evaluated':>11}{'wall s':>8}{'CPU s':>8}{'considered / CPU s':>20}")
    slowest = float("inf")
    for question in QUESTIONS:
        points, looked_at, cpu_s, wall_s = searched(*question)
        name, cluster, batch, _, stack = question
        slowest = min(slowest, points / cpu_s)
        title = f"{name} on {cluster}, batch {batch}, {stack}"
        print(f"{title:46}{points:>12,}{looked_at:>11,}{wall_s:>8.2f}{cpu_s:>8.2f}{points / cpu_s:>20,.0f}")
    alone = evaluated()
    print(f"\none by one, without bounds: {alone:,.0f} a CPU second ({DRAWS:,} drawn layouts of the first question)")
    for peer, rate in PEERS.items():
        considered, each = slowest / rate, alone / rate
        told = f"the slowest search considers {considered:,.0f}x, one by one is {each:.1f}x"
        print(f"{peer:28}{rate:>8,.0f} a second: {told}")


if __name__ == "__main__":
    main()
