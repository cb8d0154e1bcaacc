"""Shape rules: why a layout of a model on a cluster cannot be, and what would keep each rule.

Whether a layout fits in memory is not asked here. Rules of a stack (schedules, shard levels, kinds of context
parallelism that it has) are read from its `Stack`.

refusal.py        a broken rule: reason, remedy, and the fields that it reads
rules_inside.py   within a layer: heads, widths, tokens, number formats
rules_between.py  between ranks: their number, stages, experts, shards, batch
"""

from __future__ import annotations

from torchledger.machine import Cluster
from torchledger.planner import rules_between, rules_inside
from torchledger.planner.errors import LayoutRefused
from torchledger.planner.refusal import Question, Refusal
from torchledger.planner.stack import stack
from torchledger.spec import ModelSpec, Recipe, Strategy

_RULES = (
    rules_between.ranks,
    rules_inside.tensor,
    rules_inside.heads,
    rules_inside.widths,
    rules_inside.tokens,
    rules_inside.context,
    rules_inside.formats,
    rules_between.stages,
    rules_between.schedule,
    rules_between.experts,
    rules_between.shards,
    rules_between.batch,
)


def refusals(spec: ModelSpec, recipe: Recipe, strategy: Strategy, cluster: Cluster) -> tuple[Refusal, ...]:
    """Every rule that the layout breaks; none if it can be.

    Raises:
        PlanError: the strategy names a stack that is not known.

    >>> from torchledger.machine import parse_cluster
    >>> from torchledger.spec import AttentionSpec, MlpSpec
    >>> tiny = ModelSpec("tiny", 1024, 64, 2, 640, AttentionSpec(40), MlpSpec(1280))
    >>> for each in refusals(tiny, Recipe(), Strategy(tensor_parallel=16), parse_cluster("h100x16")):
    ...     print(each.text)
    tensor_parallel 16 does not divide 40 attention heads; 8, 10 and 20 do
    """
    sizes = tuple(rules_between.sizes(strategy))
    if sizes:  # nothing below can be divided by them
        return sizes
    question = Question(spec, recipe, strategy, cluster, stack(strategy.stack))
    return tuple(each for rule in _RULES for each in rule(question))


def refuse_impossible(spec: ModelSpec, recipe: Recipe, strategy: Strategy, cluster: Cluster) -> None:
    """Refuse a layout that cannot be.

    Raises:
        LayoutRefused: with every rule that it breaks.
    """
    found = refusals(spec, recipe, strategy, cluster)
    if found:
        raise LayoutRefused("\n".join(each.text for each in found))


def layout_notes(strategy: Strategy, cluster: Cluster) -> tuple[str, ...]:
    """What is allowed and seldom wanted.

    >>> from torchledger.machine import parse_cluster
    >>> layout_notes(Strategy(tensor_parallel=16), parse_cluster("h100x16"))
    ('tensor_parallel 16 is more than the 8 chips of an island: its collectives run over the network',)
    """
    island = cluster.chips_per_island
    tensor, context = strategy.tensor_parallel, strategy.context_parallel
    notes = []
    if tensor > island:
        over = f"tensor_parallel {tensor} is more than the {island} chips of an island"
        notes.append(f"{over}: its collectives run over the network")
    elif island % tensor and cluster.num_chips > island:
        notes.append(
            f"tensor_parallel {tensor} does not divide the {island} chips of an island: some groups span two islands"
        )
    if strategy.context_kind == "ulysses" and context > 1 and tensor * context > island >= tensor:
        notes.append(
            f"ulysses' all-to-alls of {context} ranks reach over islands of {island} chips and run over the network"
        )
    return tuple(notes)


__all__ = ["Refusal", "layout_notes", "refusals", "refuse_impossible"]
