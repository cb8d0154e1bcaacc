"""`stage_memory`: bytes of one pipeline rank by part, in arithmetic that a search can afford for every layout.

A step has a few moments that can be its peak, and what is alive in each is a sum:

    the loss          activations in flight, logits, what level 3 has gathered for the head
    a layer           activations in flight, what is made again, temporaries, gathered weights and their gradient
    the embedding     activations of the other micro-batches, the embedding's gradient
    a head again      with prediction layers: a gradient of the head beside the one that it is added to
    the step          copies that reducing, checking and updating gradients make; no activations

Parameters, gradients, master weights and optimizer state are alive in all of them (ZeRO, arXiv:1910.02054, section 3).
Three measures of one run, each larger than the one before, are told apart: *allocated*, what tensors hold; *reserved*,
what PyTorch's allocator has taken for them (`torch.cuda.max_memory_reserved`); *device*, what `nvidia-smi` shows.
"""

from __future__ import annotations

from typing import NamedTuple

from torchledger.planner.memory_state import Overhead, StateRule, overhead, state_rule
from torchledger.planner.outcome import StageMemory
from torchledger.planner.stack import Stack
from torchledger.planner.totals import StageTotals
from torchledger.spec import Recipe, Strategy


class Shares(NamedTuple):
    """Ranks over which things are spread, 1 where they are not.

    Attributes:
        state, expert_state: master weights and moments, of dense and of expert parameters.
        gradient, expert_gradient: gradients.
        weight, expert_weight: parameters.
    """

    state: int
    expert_state: int
    gradient: int
    expert_gradient: int
    weight: int
    expert_weight: int


class Standing(NamedTuple):
    """Bytes that are alive throughout a step.

    Attributes:
        parameters, gradients, master, state: by part.
        own: elements that this rank's optimizer updates.
    """

    parameters: float
    gradients: float
    master: float
    state: float
    own: float


class Moments(NamedTuple):
    """Bytes alive at the moments of a step beside what is always alive.

    Attributes:
        activations, made, temporaries, logits, gathered, buffers: those of the pass's worst moment, by part.
        step: those of the optimizer's step.
        pool: the largest group of weights, on the stream that gathers.
        stays: of `gathered` (or of temporaries), what is never given back and is there in the optimizer's step too.
    """

    activations: float
    made: float
    temporaries: float
    logits: float
    gathered: float
    buffers: float
    step: float
    pool: float
    stays: float = 0.0


def stage_memory(
    totals: StageTotals,
    recipe: Recipe,
    strategy: Strategy,
    stack: Stack,
    *,
    capacity_bytes: int | None = None,
    chips_per_island: int = 8,
) -> StageMemory:
    """Memory of one rank of a stage at its worst moment.

    Args:
        totals: what the stage holds.
        recipe: precision, optimizer, offload.
        strategy: shard level and group; the sizes of the groups that communicate.
        stack: whose rules hold.
        capacity_bytes: what a process may use; the allocator gives free segments back before it fails, so that
            fragmentation never exceeds what is left. Nothing: it is not limited.
        chips_per_island: chips joined by the fast link, whose communicators take more.
    """
    optimizer, level = recipe.optimizer, strategy.shard_level
    rule = state_rule(stack, recipe.precision, optimizer.kind, optimizer.momentum > 0, level)
    shares = _shares(strategy, level)
    beside = overhead(stack)
    moments = _moments(totals, recipe, strategy, stack, rule=rule, shares=shares)
    held = _standing(totals, strategy, stack, rule, shares)
    master, state, host = held.master, held.state, 0.0
    if recipe.offload_optimizer:
        host, master, state = master + state + 4 * held.own, 0.0, 0.0
    activations = moments.activations
    if recipe.offload_activations:
        away = activations * recipe.offload_activations
        host += away
        activations = activations - away + min(away, 2 * totals.layer_kept_bytes)
    passing = activations + moments.made + moments.temporaries + moments.logits + moments.gathered + moments.buffers
    outside = _communicators(totals, strategy, stack, beside, chips_per_island)
    more = max(0.0, moments.step + moments.stays - passing)
    # segments of the pass are too small for the step's copies, and the pools of two streams are never shared
    apart = moments.pool
    apart += beside.hole_share * totals.largest_block if stack.expandable_segments else moments.step - more
    parts = {
        "parameters": int(held.parameters),
        "gradients": int(held.gradients),
        "master weights": int(master),
        "optimizer state": int(state),
        "gathered weights": int(moments.gathered),
        "activations": int(activations),
        "recomputed activations": int(moments.made),
        "temporaries": int(moments.temporaries + more),
        "logits and loss": int(moments.logits),
        "communication buffers": int(moments.buffers) + outside,
        "workspace": beside.workspace,
        "fragmentation": 0,
        "context": beside.context,
    }
    if stack.allocator == "cuda":
        room = apart if capacity_bytes is None else min(apart, capacity_bytes - sum(parts.values()))
        parts["fragmentation"] = int(room) if room > 0 else 0
    return StageMemory(parts, int(host), outside)


def _shares(strategy: Strategy, level: int) -> Shares:
    if level == 0:
        return Shares(1, 1, 1, 1, 1, 1)
    dense = strategy.num_sharers
    tensor = strategy.tensor_parallel
    within = strategy.expert_tensor_parallel or tensor
    expert = dense * tensor // (strategy.expert_parallel * within) or 1
    gradient, weight = level >= 2, level == 3
    return Shares(
        dense,
        expert,
        dense if gradient else 1,
        expert if gradient else 1,
        dense if weight else 1,
        expert if weight else 1,
    )


def _standing(totals: StageTotals, strategy: Strategy, stack: Stack, rule: StateRule, shares: Shares) -> Standing:
    trained, trained_expert = totals.num_trainable, totals.num_trainable_expert
    own = trained / shares.state + trained_expert / shares.expert_state
    gradients = rule.gradient * (trained / shares.gradient + trained_expert / shares.expert_gradient)
    gradients += rule.fresh * (trained + trained_expert)
    if stack.whole_pipeline_gradients and strategy.shard_level == 3 and strategy.pipeline_parallel > 1:
        gradients += (stack.gathered_gradient_bytes or rule.computed) * (trained + trained_expert)
    if stack.bucketed_gradients and not strategy.shard_level and strategy.data_parallel * strategy.context_parallel > 1:
        gradients *= 2
    return Standing(
        rule.layer_weight
        * (totals.num_parameters / shares.weight + totals.num_expert_parameters / shares.expert_weight)
        + (rule.weight - rule.layer_weight) * totals.num_ends / shares.weight,
        gradients,
        rule.master * own,
        rule.moments * own + (rule.end_moments - rule.moments) * totals.num_ends / shares.state,
        own,
    )


def _moments(
    totals: StageTotals, recipe: Recipe, strategy: Strategy, stack: Stack, *, rule: StateRule, shares: Shares
) -> Moments:
    computed, alive = rule.computed, totals.activation_bytes
    buffers: float = totals.output_bytes * (
        totals.num_neighbours + strategy.sequence_parallel * strategy.tensor_parallel
    )
    in_bucket = min(stack.bucket_elements, totals.num_trainable + totals.num_trainable_expert) * computed
    gathers, at_layer, at_head, at_end, pool, at_added, stays = _beside_weights(totals, strategy, stack, rule, shares)
    if strategy.shard_level >= 2 and not gathers:
        buffers += in_bucket * stack.num_buckets
    head_bytes = totals.head_bytes
    if strategy.vocab_parallel and strategy.tensor_parallel > 1:
        head_bytes += stack.parallel_loss_blocks * totals.largest_block
    worst = max(
        (alive + totals.layer_bytes + at_layer, 0),
        (alive + head_bytes + at_head if head_bytes else 0.0, 1),
        (alive - totals.micro_batch_bytes + at_end, 2),
        (alive + at_added if at_added else 0.0, 3),
    )[1]
    step = _step(totals, recipe, strategy, rule, shares)
    if strategy.shard_level < 2:
        step = max(step, in_bucket * stack.num_buckets)
    made = temporaries = logits = 0.0
    if worst == 0:
        made, extra = totals.recomputed_bytes, at_layer
        temporaries = totals.layer_bytes - made
    elif worst == 1:
        logits, extra = head_bytes, at_head
    elif worst == 3:  # the fourth moment
        extra = at_added
    else:
        alive, extra = alive - totals.micro_batch_bytes, at_end
    if gathers:
        return Moments(alive, made, temporaries, logits, extra, buffers, step, pool, stays)
    return Moments(alive, made, temporaries + extra, logits, 0.0, buffers, step, pool, stays)


class _Beside(NamedTuple):
    """Bytes of gathered weights and of fresh gradients at the moments of the pass.

    Attributes:
        gathers: whether weights are gathered.
        at_layer, at_head, at_end: in a layer's backward pass, at the loss, in the embedding's backward pass.
        pool: the largest group of weights, on the stream that gathers.
        at_added: where a gradient of the head is added to one that is there already; 0 where there is but one.
        stays: of each, what is never given back: buffers of layers, weights of the ends.
    """

    gathers: bool
    at_layer: float
    at_head: float
    at_end: float
    pool: float
    at_added: float = 0.0
    stays: float = 0.0

    def with_buffers(self, size: float) -> _Beside:
        """Bytes beside what is never given back, and so alive in every moment."""
        if not size:
            return self
        added = self.at_added + size if self.at_added else 0.0
        return _Beside(
            self.gathers, self.at_layer + size, self.at_head + size, self.at_end + size, self.pool, added, size
        )


def _beside_weights(totals: StageTotals, strategy: Strategy, stack: Stack, rule: StateRule, shares: Shares) -> _Beside:
    computed = rule.computed
    layer = totals.largest_layer + totals.largest_layer_expert
    stays = _layer_buffers(layer, strategy, stack, rule, shares)
    if strategy.shard_level != 3 or (shares.weight == 1 and computed == rule.weight):
        at_end = (computed + (rule.gradient if rule.fresh else 0.0)) * totals.embedding
        at_layer = computed * min(layer, totals.largest_tensor)
        at_head = computed * totals.head
        return _Beside(gathers=False, at_layer=at_layer, at_head=at_head, at_end=at_end, pool=0.0).with_buffers(stays)
    root, (again, head_again) = totals.root, totals.root_added
    kept = end = 0.0  # weights that are not given back between passes: of layers, of the embedding
    # buffers of layers hold what is gathered and reduced, and a fresh gradient is copied to its layer's
    layers = 0.0 if stack.layer_buffers else rule.gathered * layer * (1 + strategy.prefetch)
    if not strategy.reshard or (strategy.pipeline_parallel > 1 and not stack.reshard):
        kept = layers = rule.gathered * (totals.num_parameters + totals.num_expert_parameters - totals.num_ends)
        end = 0.0 if root else computed * totals.embedding
    kept_gradient = computed * max(totals.head, again + head_again) if root else 0.0
    gradient = computed + rule.reduced
    # the root's weights, its gradient, and the last that is added to it or the copy that is reduced
    at_end = (computed + gradient) * (root or totals.embedding) + max(0.0, computed * again - rule.reduced * root)
    at_end += kept if strategy.pipeline_parallel > 1 else 0.0
    at_loss = kept + end + computed * (totals.head if not root else layer if stack.root_given_back else root)
    if stack.ends_stay:  # all of them are in every moment
        stays += computed * totals.num_ends
        at_loss, at_end = at_loss - computed * totals.head, at_end - computed * totals.embedding
    matrix = max(head_again, again) if head_again else 0  # a tied head has a norm only, and the embedding's table
    at_added = kept + computed * root + (2 * computed + rule.cast) * matrix if matrix else 0.0
    pool = computed * (max(root, totals.embedding, totals.head) + layer) if stack.stream_pools else 0.0
    fresh = computed * min(layer, totals.largest_tensor) if stack.layer_buffers else gradient * layer
    return _Beside(
        gathers=True,
        at_layer=computed * root + kept_gradient + layers + end + fresh,
        at_head=at_loss,
        at_end=at_end,
        pool=pool,
        at_added=at_added,
    ).with_buffers(stays)


def _layer_buffers(layer: int, strategy: Strategy, stack: Stack, rule: StateRule, shares: Shares) -> float:
    """Bytes of the buffers that some layers' gathered weights and whole gradients have for themselves."""
    if shares.gradient == 1:
        return 0.0
    weights = rule.gathered if strategy.shard_level == 3 else 0.0
    return stack.layer_buffers * layer * (weights + (rule.reduced or rule.computed))


class Skeleton(NamedTuple):
    """Bytes of a stage that its activations have no part in; what a bound of memory starts from.

    Attributes:
        standing: alive all the time: the training state, buffers outside the allocator, context, workspace.
        at_layer, at_head: of weights and gradients in a layer's backward pass and at the loss.
        pool: what the allocator has besides, as long as there is room.
    """

    standing: float
    at_layer: float
    at_head: float
    pool: float = 0.0


def skeleton(
    totals: StageTotals, recipe: Recipe, strategy: Strategy, stack: Stack, *, chips_per_island: int
) -> Skeleton:
    """The skeleton of a stage; with any activations `stage_memory` is at least that and theirs."""
    optimizer, level = recipe.optimizer, strategy.shard_level
    rule = state_rule(stack, recipe.precision, optimizer.kind, optimizer.momentum > 0, level)
    shares, beside = _shares(strategy, level), overhead(stack)
    held = _standing(totals, strategy, stack, rule, shares)
    standing = held.parameters + held.gradients
    standing += 0.0 if recipe.offload_optimizer else held.master + held.state
    standing += _communicators(totals, strategy, stack, beside, chips_per_island) + beside.workspace + beside.context
    weights = _beside_weights(totals, strategy, stack, rule, shares)
    return Skeleton(standing, weights.at_layer, weights.at_head, weights.pool if stack.allocator == "cuda" else 0.0)


def _step(totals: StageTotals, recipe: Recipe, strategy: Strategy, rule: StateRule, shares: Shares) -> float:
    """Bytes of the copies that reducing, checking and updating gradients make, at their worst."""
    whole = totals.num_trainable + totals.num_trainable_expert
    own = totals.num_trainable / shares.state + totals.num_trainable_expert / shares.expert_state
    updating = rule.update * own if strategy.shard_level else rule.whole_update * whole
    if recipe.optimizer.implementation == "foreach":  # the root of the second moments, of all tensors at once
        updating += 4 * own
    elif recipe.optimizer.implementation == "loop":
        updating += 8 * totals.largest_tensor / shares.weight
    return max(updating, rule.tensor_copy * min(totals.largest_tensor, own), rule.reduce_copy * whole)


def _communicators(totals: StageTotals, strategy: Strategy, stack: Stack, beside: Overhead, island: int) -> int:
    """Buffers of NCCL's communicators, which lie outside the allocator."""
    if strategy.num_ranks == 1:
        return 0
    reach = strategy.tensor_parallel
    found = 0
    if reach > 1:
        found = stack.island_communicators * (
            (beside.pair if reach == 2 else beside.group) if reach <= island else beside.network
        )
    for ranks in (strategy.context_parallel, strategy.data_parallel):
        if ranks > 1:
            reach *= ranks
            near = beside.pair if ranks == 2 else beside.group
            found += near if reach <= island else beside.network
    if totals.num_neighbours:
        near = reach * strategy.pipeline_parallel <= island
        found += totals.num_neighbours * (beside.pair if near else beside.network)
    if strategy.expert_parallel > 1:
        near = strategy.tensor_parallel * strategy.expert_parallel <= island
        found += beside.group if near else beside.network
    return found + stack.network_communicators * (beside.network if strategy.num_ranks > island else beside.group)


__all__ = ["Moments", "Shares", "Skeleton", "skeleton", "stage_memory"]
