"""`Estimator`: seconds and bytes of any layout of one question, each distinct block costed once.

A search asks for hundreds of thousands of layouts; they are made of a few hundred distinct blocks. What a block costs is
got from the formula once, line by line, and remembered; a layout is arithmetic on the remembered numbers. The plan goes
the same way, so both say the same to the last digit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from torchledger.machine import Cluster
from torchledger.planner.assembly import assemble
from torchledger.planner.block import Piece, meant_precision, pieces, stream_format
from torchledger.planner.chipset import chipset_of
from torchledger.planner.constants import Constants, default_constants
from torchledger.planner.data_parallel import data_rules
from torchledger.planner.efficiency import Chipset
from torchledger.planner.exchange import Exchange, group_of
from torchledger.planner.fabric import Fabric
from torchledger.planner.memory import stage_memory
from torchledger.planner.outcome import Estimate, StageMemory
from torchledger.planner.piece_cost import PieceCost, piece_cost
from torchledger.planner.schedule import in_flight
from torchledger.planner.shard import micro_batch_size, num_micro_batches
from torchledger.planner.stack import stack
from torchledger.planner.stage import Block, Stage
from torchledger.planner.step import StepCost, StepRules, step_cost
from torchledger.planner.totals import totals
from torchledger.planner.update import update_bytes
from torchledger.spec import ModelSpec, Recipe, Strategy
from torchledger.spec.recipe import Recompute

#: [stage][chunk] blocks, what each costs, and how many of them.
Stages = tuple[tuple[tuple[tuple[Block, PieceCost, int], ...], ...], ...]


class Costed(NamedTuple):
    """The distinct blocks of a layout and what they cost.

    Attributes:
        pieces: the blocks with their exchanges.
        costs: seconds of each, in the same order.
    """

    pieces: tuple[Piece, ...]
    costs: tuple[PieceCost, ...]


class Estimator:
    """Costs layouts of one model, recipe and cluster."""

    def __init__(
        self, spec: ModelSpec, recipe: Recipe, cluster: Cluster, *, constants: Constants | None = None
    ) -> None:
        self.spec = spec
        self.recipe = recipe
        self.cluster = cluster
        self.constants = default_constants(cluster.chip) if constants is None else constants
        self.fabric = Fabric.of(
            cluster, link_share=self.constants.link_share, network_share=self.constants.network_share
        )
        self._pieces: dict[tuple[object, ...], tuple[Piece, ...]] = {}
        self._costed: dict[tuple[object, ...], Costed] = {}
        self._chips: dict[str, Chipset] = {}
        self._others: dict[Recompute, Estimator] = {recipe.recompute: self}

    @property
    def capacity_bytes(self) -> int | None:
        """Bytes of a chip as its driver reports them; as sold where nobody wrote that down; nothing if unknown."""
        chip = self.cluster.chip
        return chip.memory_bytes_reported or chip.memory_bytes_nominal

    def chips(self, strategy: Strategy) -> Chipset:
        """The chip's rates with the kernels of the layout's stack."""
        found = self._chips.get(strategy.stack)
        if found is None:
            kernel = stack(strategy.stack).attention_kernel
            found = self._chips[strategy.stack] = chipset_of(self.cluster.chip, self.constants, kernel)
        return found

    def at(self, recompute: Recompute) -> Estimator:
        """The same question with another recompute, remembered."""
        found = self._others.get(recompute)
        if found is None:
            recipe = replace(self.recipe, recompute=recompute)
            found = self._others[recompute] = Estimator(self.spec, recipe, self.cluster, constants=self.constants)
        return found

    def with_constants(self, constants: Constants) -> Estimator:
        """The same question under other constants; what does not depend on them is shared."""
        other = Estimator(self.spec, self.recipe, self.cluster, constants=constants)
        other._pieces = self._pieces
        return other

    def costed(self, strategy: Strategy) -> Costed:
        """The layout's distinct blocks with their costs, remembered by what of the layout they depend on."""
        key = (
            strategy.stack,
            strategy.tensor_parallel,
            strategy.sequence_parallel,
            strategy.vocab_parallel,
            strategy.context_parallel,
            strategy.context_kind,
            strategy.expert_parallel,
            strategy.expert_tensor_parallel,
            micro_batch_size(self.recipe, strategy),
            strategy.overlap_tensor,
            strategy.pipeline_parallel > 1 and self.spec.tied_embeddings,
        )
        found = self._costed.get(key)
        if found is None:
            found = self._costed[key] = self._cost(key, strategy)
        return found

    def _cost(self, key: tuple[object, ...], strategy: Strategy) -> Costed:
        rules = stack(strategy.stack)
        found = self._pieces.get(key)
        if found is None:
            found = pieces(self.spec, self.recipe, strategy, rules)
            if strategy.pipeline_parallel > 1 and self.spec.tied_embeddings:
                found = _with_copied_head(found)
            self._pieces[key] = found

        def exchange_s(exchange: Exchange) -> float:
            return self.fabric.seconds(exchange.op, exchange.num_bytes, *group_of(exchange.cause, strategy))

        chips = self.chips(strategy)
        costs = tuple(
            piece_cost(each, chips, self.constants, exchange_s, is_eager=not rules.compiled) for each in found
        )
        return Costed(found, costs)

    def stages(self, strategy: Strategy) -> Stages:
        """[stage][chunk] blocks, what each costs and how many of them."""
        costed = self.costed(strategy)
        kinds = tuple((each.block.kind, each.first_layer, each.num_layers) for each in costed.pieces)
        together = stack(strategy.stack).embeddings_as_layers
        return tuple(
            tuple(
                tuple((costed.pieces[i].block, costed.costs[i], count) for i, count in chunk) for chunk in stage_chunks
            )
            for stage_chunks in assemble(kinds, self.spec, strategy, embeddings_as_layers=together)
        )

    def rules(self, strategy: Strategy) -> StepRules:
        """What the layout's step depends on beside its blocks."""
        rules = stack(strategy.stack)
        precision = meant_precision(self.recipe, rules)
        costed = self.costed(strategy)
        return StepRules(
            num_micro_batches=num_micro_batches(self.recipe, strategy),
            send_bytes=costed.pieces[1].block.output_bytes,
            optimizer_s_per_parameter=update_bytes(self.recipe.optimizer, precision) / self.chips(strategy).bytes_per_s,
            data=data_rules(self.recipe, strategy, rules, precision),
            doublings=math.log2(max(1, self.cluster.num_islands)),
        )

    def step(self, strategy: Strategy) -> StepCost:
        """Seconds of the layout's step, by part."""
        return step_cost(self.stages(strategy), strategy, self.rules(strategy), self.fabric, self.constants)

    def held(self, strategy: Strategy) -> tuple[Stage, ...]:
        """What every pipeline rank holds."""
        stages = self.stages(strategy)
        count = num_micro_batches(self.recipe, strategy)
        flying = in_flight(strategy.schedule, strategy.pipeline_parallel, len(stages[0]), count)
        return tuple(
            Stage(index, tuple(tuple((block, count) for block, _, count in chunk) for chunk in stage), flying[index])
            for index, stage in enumerate(stages)
        )

    def memory(self, strategy: Strategy, stage: Stage) -> StageMemory:
        """Memory of a rank of a stage, by part."""
        last = strategy.pipeline_parallel - 1
        neighbours = (stage.index > 0) + (stage.index < last)
        return stage_memory(
            totals(stage.chunks, stage.in_flight, neighbours),
            self.recipe,
            strategy,
            stack(strategy.stack),
            capacity_bytes=self.capacity_bytes,
            chips_per_island=self.cluster.chips_per_island,
        )

    def estimate(self, strategy: Strategy, recompute: Recompute | None = None) -> Estimate:
        """Seconds of a step and bytes of the fullest rank of a layout that can be."""
        if recompute is not None and recompute != self.recipe.recompute:
            return self.at(recompute).estimate(strategy)
        peak = max(self.memory(strategy, stage).peak_bytes for stage in self.held(strategy))
        return Estimate(self.step(strategy).step_s, peak)


def _with_copied_head(found: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """A tied head on a stage of its own is a copy of the embedding, kept equal by adding up both gradients."""
    embedding = next(each.block for each in found if each.block.kind == "embedding")
    return tuple(
        replace(
            each,
            block=replace(
                each.block,
                num_parameters=each.block.num_parameters + embedding.num_parameters,
                num_trainable=each.block.num_trainable + embedding.num_trainable,
            ),
        )
        if each.block.kind == "head"
        else each
        for each in found
    )
