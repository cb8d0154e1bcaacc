"""`Estimator`: seconds and bytes of any layout of one question, each distinct block costed once.

A search asks for hundreds of thousands of layouts; they are made of a few hundred distinct blocks. What a block costs
is got from the formula once, line by line, and remembered; a layout is arithmetic on the remembered numbers. The plan
goes the same way, so both say the same to the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from torchledger.machine import Cluster
from torchledger.machine.link import Link
from torchledger.planner.assembly import Assembly, assemble
from torchledger.planner.block import Piece, pieces
from torchledger.planner.chipset import chipset_of
from torchledger.planner.constants import Constants, default_constants
from torchledger.planner.data_parallel import DataRules, data_rules
from torchledger.planner.efficiency import Chipset
from torchledger.planner.exchange import Exchange, group_of
from torchledger.planner.fabric import Fabric
from torchledger.planner.host import Host, HostRules, host_of, host_rules
from torchledger.planner.memory import stage_memory
from torchledger.planner.memory_state import usable_bytes
from torchledger.planner.outcome import Estimate, StageMemory
from torchledger.planner.piece_cost import PieceCost, piece_cost
from torchledger.planner.schedule import in_flight
from torchledger.planner.shard import micro_batch_size, num_micro_batches, sharded_vocab_size
from torchledger.planner.stack import Stack, stack
from torchledger.planner.stage import Block, Stage
from torchledger.planner.step import StepCost, StepRules, step_cost
from torchledger.planner.totals import StageTotals, totals
from torchledger.planner.update import update_s
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
        self.fabric = Fabric.of(_scaled(cluster, self.constants))
        self._pieces: dict[tuple[object, ...], tuple[Piece, ...]] = {}
        self._costed: dict[tuple[object, ...], Costed] = {}
        self._chips: dict[str, Chipset] = {}
        self._updates: dict[str, float] = {}
        self._assembled: dict[tuple[object, ...], Assembly] = {}
        # of the layout that was asked last: a search asks for all shardings of an order one after the other
        self._staged: tuple[object, Stages] = (None, ())
        self._totaled: tuple[object, tuple[StageTotals, ...]] = (None, ())
        self._others: dict[Recompute, Estimator] = {recipe.recompute: self}

    @property
    def capacity_bytes(self) -> int | None:
        """Bytes of a chip that a process may use; nothing if unknown."""
        return usable_bytes(self.cluster.chip)

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
                found = _with_copied_head(found, self._table(strategy))
            self._pieces[key] = found

        def exchange_s(exchange: Exchange) -> float:
            group = group_of(exchange.cause, strategy)
            return self.fabric.seconds(exchange.op, exchange.num_bytes, *group, copies=exchange.copies)

        chips = self.chips(strategy)
        factor = 0.0 if rules.compiled else rules.host_factor
        costs = tuple(piece_cost(each, chips, self.constants, exchange_s, host_factor=factor) for each in found)
        return Costed(found, costs)

    def stages(self, strategy: Strategy) -> Stages:
        """[stage][chunk] blocks, what each costs and how many of them; equal stages are one object."""
        costed = self.costed(strategy)
        order = (strategy.schedule, strategy.pipeline_parallel, strategy.virtual_stages, strategy.stage_layers)
        key = (id(costed), order)
        if self._staged[0] != key:
            kinds = tuple((each.block.kind, each.runs) for each in costed.pieces)
            assembly = self._assembled.get((kinds, strategy.stack, order))
            if assembly is None:
                together = stack(strategy.stack).embeddings_as_layers
                assembly = assemble(kinds, self.spec, strategy, embeddings_as_layers=together)
                self._assembled[kinds, strategy.stack, order] = assembly
            distinct = {
                each: tuple(
                    tuple((costed.pieces[i].block, costed.costs[i], count) for i, count in chunk) for chunk in each
                )
                for each in dict.fromkeys(assembly)
            }
            self._staged = (key, tuple([distinct[each] for each in assembly]))
        return self._staged[1]

    def rules(self, strategy: Strategy) -> StepRules:
        """What the layout's step depends on beside its blocks."""
        rules = stack(strategy.stack)
        precision = rules.precision(self.recipe.precision)
        costed = self.costed(strategy)
        count = num_micro_batches(self.recipe, strategy)
        data = data_rules(self.recipe, strategy, rules, precision)
        added = (data.added_bytes[0] + 2 * data.added_bytes[1]) * data.additions / count
        return StepRules(
            num_micro_batches=count,
            send_bytes=_send_bytes(costed.pieces[1].block.output_bytes, strategy, rules),
            optimizer_s_per_parameter=self.update_s(strategy),
            data=data,
            doublings=math.log2(max(1, self.cluster.num_islands)),
            added_s_per_element=added / self.chips(strategy).bytes_per_s,
            tied_bytes=self._tied_bytes(strategy, data),
            host=self.host_rules(strategy),
        )

    def _tied_bytes(self, strategy: Strategy, data: DataRules) -> float:
        """Bytes of a rank's gradients of a table that two stages hold."""
        pieces_ = self.costed(strategy).pieces
        if strategy.pipeline_parallel == 1 or not self.spec.tied_embeddings or not pieces_[0].block.num_trainable:
            return 0.0
        ranks = data.dense[0] if strategy.shard_level > 1 else 1
        return self._table(strategy) * data.gradient_bytes / ranks

    def _table(self, strategy: Strategy) -> int:
        """Elements of a rank's token table."""
        rows = sharded_vocab_size(self.spec, strategy, stack(strategy.stack))
        return rows * (self.spec.embedding_size or self.spec.hidden_size)

    def update_s(self, strategy: Strategy) -> float:
        """Seconds that the update of one parameter takes in the layout's stack, remembered."""
        found = self._updates.get(strategy.stack)
        if found is None:
            precision = stack(strategy.stack).precision(self.recipe.precision)
            where = self.host if self.recipe.offload_optimizer else None
            found = update_s(self.spec, self.recipe, precision, self.chips(strategy), where)
            self._updates[strategy.stack] = found
        return found

    @property
    def host(self) -> Host:
        """The chip's share of its host."""
        return host_of(self.cluster.chip)

    def host_rules(self, strategy: Strategy) -> HostRules:
        """Seconds of what the recipe offloads."""
        if not self.recipe.offload_optimizer and not self.recipe.offload_activations:
            return HostRules()
        return host_rules(self.recipe, strategy, stack(strategy.stack), self.host)

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

    def peak_bytes(self, strategy: Strategy) -> int:
        """Bytes of the fullest rank."""
        rules, island = stack(strategy.stack), self.cluster.chips_per_island
        capacity = self.capacity_bytes
        return max(
            stage_memory(
                each, self.recipe, strategy, rules, capacity_bytes=capacity, chips_per_island=island
            ).peak_bytes
            for each in self._fullest(strategy)
        )

    def _fullest(self, strategy: Strategy) -> tuple[StageTotals, ...]:
        """Totals of the stages that may be the fullest: of equal ones those with most micro-batches in flight."""
        stages = self.stages(strategy)
        count = num_micro_batches(self.recipe, strategy)
        key = (self._staged[0], count)
        if self._totaled[0] != key:
            last = strategy.pipeline_parallel - 1
            flying = in_flight(strategy.schedule, strategy.pipeline_parallel, len(stages[0]), count)
            alike: dict[tuple[int, int], list[int]] = {}
            for index, stage in enumerate(stages):
                alike.setdefault((id(stage), (index > 0) + (index < last)), []).append(index)
            found = []
            for (_, neighbours), indices in alike.items():
                chunks = tuple(tuple((block, n) for block, _, n in chunk) for chunk in stages[indices[0]])
                distinct = dict.fromkeys(flying[index] for index in indices)
                found += [
                    totals(chunks, each, neighbours) for each in distinct if not _is_below_another(each, distinct)
                ]
            self._totaled = (key, tuple(found))
        return self._totaled[1]

    def estimate(self, strategy: Strategy, recompute: Recompute | None = None) -> Estimate:
        """Seconds of a step and bytes of the fullest rank of a layout that can be."""
        if recompute is not None and recompute != self.recipe.recompute:
            return self.at(recompute).estimate(strategy)
        return Estimate(self.step(strategy).step_s, self.peak_bytes(strategy))


def _is_below_another(flying: tuple[float, ...], others: Iterable[tuple[float, ...]]) -> bool:
    """Whether another has at least as many in flight in every chunk."""
    return any(
        each != flying and all(mine <= theirs for mine, theirs in zip(flying, each, strict=True)) for each in others
    )


def _with_copied_head(found: tuple[Piece, ...], table: int) -> tuple[Piece, ...]:
    """A tied head on a stage of its own is a copy of the token table, kept equal by adding up both gradients.

    What else the embedding has, a table of positions or a norm, is on the first stage only.
    """
    embedding = next(each.block for each in found if each.block.kind == "embedding")
    return tuple(
        replace(
            each,
            block=replace(
                each.block,
                num_parameters=each.block.num_parameters + table,
                num_trainable=each.block.num_trainable + (table if embedding.num_trainable else 0),
                num_tensors=each.block.num_tensors + 1,
                largest_tensor=max(each.block.largest_tensor, table),
            ),
        )
        if each.block.kind == "head"
        else each
        for each in found
    )


def _scaled(cluster: Cluster, constants: Constants) -> Cluster:
    """The cluster with links as fast as the constants say they are."""
    if constants.link_factor == constants.network_factor == 1:
        return cluster
    return replace(
        cluster,
        scale_up=_faster(cluster.scale_up, constants.link_factor),
        network=_faster(cluster.network, constants.network_factor),
    )


def _faster(link: Link | None, factor: float) -> Link | None:
    if link is None:
        return None
    peer = link.bytes_per_s_per_peer
    return replace(
        link,
        bytes_per_s_per_direction=link.bytes_per_s_per_direction * factor,
        bytes_per_s_per_peer=None if peer is None else peer * factor,
    )


def _send_bytes(output_bytes: int, strategy: Strategy, rules: Stack) -> float:
    """What one rank sends to the next stage; with sequence parallelism the stream is its own part already."""
    cut = strategy.tensor_parallel if rules.scatters_sends and not strategy.sequence_parallel else 1
    return output_bytes / cut
