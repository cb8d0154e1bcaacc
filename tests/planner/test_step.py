"""From seconds of blocks to seconds of a step, by arithmetic on made-up blocks."""

from dataclasses import dataclass, replace

import pytest

from torchledger.planner.constants import Constants
from torchledger.planner.data_parallel import DataRules
from torchledger.planner.host import HostRules
from torchledger.planner.piece_cost import PhaseCost, PieceCost
from torchledger.planner.stage import Block
from torchledger.planner.step import StepRules, step_cost
from torchledger.spec import Strategy

#: Nothing but the parts themselves: no drag, no loop, no stragglers.
PLAIN = Constants(drag=0.0, step_s=0.0, straggler=0.0)
ALONE = DataRules(2, 4, dense=(1, 1), expert=(1, 1), replicas=(1, 1), level=0, reshard=True, each_layer=False)
#: Of a parameter: 2 bytes gathered, 4 reduced.
SHARED = ALONE._replace(dense=(8, 1))


@dataclass(frozen=True)
class Network:
    """A second for every 10 bytes, whatever the collective; a second a send."""

    def seconds(self, op, num_bytes, _size, _stride):
        """Of a collective."""
        return 1.0 if op == "send" else num_bytes / 10


def block(name="layer", num_parameters=10):
    return Block(name, "layer", (), num_parameters, 0, num_parameters, 0, 1, num_parameters, (), 0, 0, 0, 0, 0)


def cost(forward, backward, weight, recompute=0.0):
    return PieceCost(*(PhaseCost(each, ()) for each in (forward, recompute, backward, weight)))


LAYER = (block(), cost(1, 2, 3), 4)
HEAD = (block("head", 20), cost(5, 6, 7), 1)


def rules(num_micro_batches=2, data=ALONE, optimizer_s=0.0, doublings=0):
    return StepRules(num_micro_batches, 8, optimizer_s, data, doublings)


def step(stages, strategy=None, constants=PLAIN, **given):
    return step_cost(stages, strategy or Strategy(), rules(**given), Network(), constants)


def test_one_rank_runs_its_blocks_for_every_micro_batch():
    """A step is m · sum over blocks of count · (forward + backward + weight)."""
    assert step([[[LAYER, HEAD]]], num_micro_batches=3).step_s == 3 * (4 * (1 + 2 + 3) + (5 + 6 + 7))


def test_recompute_is_part_of_the_backward_pass():
    """What runs again is added to a chunk's backward pass."""
    chunk = [(block(), cost(1, 2, 3, recompute=1), 4)]
    assert step([[chunk]]).chunks[0][0] == (4 * 1, 4 * (1 + 2), 4 * 3)


def test_even_stages_wait_for_the_others_but_one():
    """1F1B: (m + p - 1) · (forward + backward) and sends of what fills and drains (arXiv:2104.04473, section 2.2.1)."""
    found = step([[[LAYER]]] * 4, Strategy(pipeline_parallel=4), num_micro_batches=8)
    without_sends = (8 + 4 - 1) * 4 * (1 + 2 + 3)
    assert found.step_s == found.pipeline.total_s == without_sends + found.pipeline.send_exposed_s
    assert found.pipeline.send_exposed_s >= 2 * (4 - 1) * 1.0
    assert found.send_s == 1.0


def test_gradients_that_do_not_overlap_show_in_full():
    """Level 0 all-reduces 4 bytes a parameter once a step: (4 · 10 + 20) · 4 / 10 seconds."""
    strategy = Strategy(data_parallel=8, overlap_data=False)
    found = step([[[LAYER, HEAD]]], strategy, data=SHARED)
    assert found.reduce_s == ((4 * 10 + 20) * 4 / 10,)
    assert found.gather_s == (0.0,)
    assert found.step_s == 2 * 42 + 24


@pytest.mark.parametrize(("backward", "shows"), [(100, 0), (3, 24 - (4 * 3 + 3))])
def test_gradients_hide_behind_the_last_backward_pass(backward, shows):
    """What shows is what the reduction of 24 s takes longer than one micro-batch's backward pass."""
    blocks = [(block(), cost(1, backward, 0), 4), (block("head", 20), cost(1, backward, 0), 1)]
    assert step([[blocks]], Strategy(data_parallel=8), data=SHARED).reduce_s == (shows,)


def test_drag_shows_a_share_of_what_is_hidden():
    """With a drag of 0.1 a hidden reduction of 24 s shows 2.4 s."""
    blocks = [(block(), cost(1, 100, 0), 4), (block("head", 20), cost(1, 100, 0), 1)]
    found = step([[blocks]], Strategy(data_parallel=8), replace(PLAIN, drag=0.1), data=SHARED)
    assert found.reduce_s == (pytest.approx(0.1 * 24),)


@pytest.mark.parametrize("level", [1, 2])
def test_sharded_states_gather_the_new_weights_once_a_step(level):
    """Levels 1 and 2 gather 2 bytes a parameter and reduce 4: 12 and 24 seconds for 60 of them."""
    strategy = Strategy(data_parallel=8, shard_level=level, overlap_data=False)
    found = step([[[LAYER, HEAD]]], strategy, data=SHARED._replace(level=level))
    assert (found.gather_s, found.reduce_s) == (((4 * 10 + 20) * 2 / 10,), ((4 * 10 + 20) * 4 / 10,))


@pytest.mark.parametrize(("reshard", "gathers"), [(True, 2), (False, 1)])
def test_level_3_gathers_every_layer_for_every_pass(reshard, gathers):
    """Each layer's 20 bytes are gathered once or twice a micro-batch and its 40 bytes of gradients reduced.

    One more gathering of the first block and one more reduction have nothing beside them.
    """
    strategy = Strategy(data_parallel=8, shard_level=3, reshard=reshard, overlap_data=False)
    data = SHARED._replace(level=3, reshard=reshard, each_layer=True, reduces_each=True)
    found = step([[[LAYER]]], strategy, data=data)
    each = gathers * 10 * 2 / 10 + 10 * 4 / 10
    assert found.step_s == pytest.approx(2 * 4 * (6 + each) + 10 * 2 / 10 + 10 * 4 / 10)


def test_level_3_hides_behind_the_layer_beside_it():
    """A gathering of 2 s beside a forward pass of 1 s shows 1 s; 2 + 4 s beside a backward pass of 5 s show 1 s."""
    strategy = Strategy(data_parallel=8, shard_level=3)
    found = step([[[LAYER]]], strategy, data=SHARED._replace(level=3, each_layer=True, reduces_each=True))
    assert found.chunks[0][0] == (4 * (1 + 1), 4 * (2 + 1), 4 * 3)


def test_level_2_reduces_for_every_micro_batch_and_gathers_once():
    """Nothing overlaps: 4 s of reduction for each of 2 micro-batches of 4 layers, 2 s of gathering each at the end."""
    strategy = Strategy(data_parallel=8, shard_level=2, overlap_data=False)
    found = step([[[LAYER]]], strategy, data=SHARED._replace(level=2, reshard=False, reduces_each=True))
    assert found.step_s == pytest.approx(2 * 4 * (6 + 10 * 4 / 10) + 4 * 10 * 2 / 10 + 10 * 4 / 10)


def test_gradients_of_a_micro_batch_are_added_to_those_before():
    """10 parameters a layer at half a second each: 5 s more for each of 2 micro-batches of 4 layers."""
    plain = step([[[LAYER]]], Strategy(), data=ALONE)
    adding = rules(data=ALONE)._replace(added_s_per_element=0.5)
    found = step_cost([[[LAYER]]], Strategy(), adding, Network(), PLAIN)
    assert found.step_s == pytest.approx(plain.step_s + 2 * 4 * 10 * 0.5)


def test_gradients_go_to_the_host_and_weights_come_back():
    """40 parameters at 4 and at 2 bytes over a link of 10 bytes a second, beside the update: nothing is hidden."""
    plain = step([[[LAYER]]], optimizer_s=1.0)
    found = step_cost(
        [[[LAYER]]], Strategy(), rules(optimizer_s=1.0)._replace(host=HostRules(4, 2, 0.0, 10)), Network(), PLAIN
    )
    assert found.host_s == (40 * 4 / 10, 40 * 2 / 10)
    assert found.step_s == pytest.approx(plain.step_s + 40 * (4 + 2) / 10)


def test_kept_activations_are_copied_beside_the_passes():
    """Half of 60 bytes at 10 a second: 3 s beside a forward pass of 1 s and a backward pass of 5 s; the head's stay."""
    keeping = [
        (replace(each, kept_bytes=60, kind=kind), *rest)
        for kind, (each, *rest) in zip(("layer", "head"), (LAYER, HEAD), strict=True)
    ]
    away = rules()._replace(host=HostRules(0, 0, 0.5, 10))
    found = step_cost([[keeping]], Strategy(), away, Network(), PLAIN)
    assert found.chunks[0][0] == (4 * (1 + 3 - 1) + 5, 4 * 2 + 6, 4 * 3 + 7)
    dragged = step_cost([[keeping]], Strategy(), away, Network(), replace(PLAIN, drag=0.1))
    assert dragged.chunks[0][0] == pytest.approx((4 * (1 + 2 + 0.1) + 5, 4 * (2 + 0.3) + 6, 4 * 3 + 7))


def test_copies_hide_behind_what_gathering_takes_too():
    """Gathering takes 2 s and shows 1 s beside a pass of 1 s: of a copy of 3 s another second shows, not two."""
    data = SHARED._replace(level=3, each_layer=True, reduces_each=True)
    keeping = (replace(LAYER[0], kept_bytes=30), *LAYER[1:])
    away = rules(data=data)._replace(host=HostRules(0, 0, 1.0, 10))
    found = step_cost([[[keeping]]], Strategy(data_parallel=8, shard_level=3), away, Network(), PLAIN)
    assert found.chunks[0][0].forward_s == 4 * (1 + 1 + 1)


def test_a_tied_table_is_added_up_between_the_ends_of_a_pipeline():
    """20 bytes over 2 ranks, and nothing else at the ends: the other stages wait for the first and the last."""
    plain = step([[[LAYER]]] * 4, Strategy(pipeline_parallel=4))
    tied = rules()._replace(tied_bytes=20)
    found = step_cost([[[LAYER]]] * 4, Strategy(pipeline_parallel=4), tied, Network(), PLAIN)
    tied_s = Network().seconds("all_reduce", 20, 2, 3)
    assert found.reduce_s == (tied_s, 0, 0, tied_s)
    assert found.step_s == plain.step_s + tied_s > plain.step_s


def test_replicas_of_a_shard_group_add_up_their_shards():
    """HSDP: beside the reduction of 40 bytes, an all-reduce of a shard of 40/8 bytes."""
    strategy = Strategy(data_parallel=32, shard_group=8, shard_level=3, overlap_data=False)
    data = SHARED._replace(level=3, each_layer=True, reduces_each=True)
    alone = step([[[LAYER]]], strategy, data=data).step_s
    assert step([[[LAYER]]], strategy, data=data._replace(replicas=(4, 8))).step_s == pytest.approx(
        alone + (2 * 4 + 1) * 40 / 8 / 10
    )


@pytest.mark.parametrize(("level", "share"), [(0, 1), (1, 8), (3, 8)])
def test_the_optimizer_updates_its_shard_on_the_fullest_stage(level, share):
    """60 and 40 parameters on two stages: 60 are updated, an eighth of them where states are sharded."""
    data = SHARED._replace(level=level)
    stages = [[[LAYER, HEAD]], [[LAYER]]]
    found = step(stages, Strategy(pipeline_parallel=2, data_parallel=8, shard_level=level), data=data, optimizer_s=2.0)
    assert found.optimizer_s == 60 / share * 2.0


def test_the_loop_overhead_and_stragglers_are_added_to_what_runs():
    """A step is what runs · overhead · (1 + straggler · doublings) + step_s: 84 · 1.1 · (1 + 0.01 · 3) + 0.5."""
    constants = replace(PLAIN, overhead=1.1, straggler=0.01, step_s=0.5)
    found = step([[[LAYER, HEAD]]], constants=constants, doublings=3)
    assert found.step_s == pytest.approx(2 * 42 * 1.1 * (1 + 0.01 * 3) + 0.5)
    assert found.straggler_s == pytest.approx(2 * 42 * (1.1 * 1.03 - 1))


def test_virtual_stages_reduce_beside_more_micro_batches():
    """With two chunks of two stages, gradients hide behind twice as many micro-batches' passes."""
    small = [(block("layer", 100), cost(1, 1, 0), 1)]
    one = step([[small + small]] * 2, Strategy(pipeline_parallel=2, data_parallel=8), num_micro_batches=4, data=SHARED)
    two = step(
        [[small, small]] * 2,
        Strategy(pipeline_parallel=2, data_parallel=8, schedule="interleaved", virtual_stages=2),
        num_micro_batches=4,
        data=SHARED,
    )
    assert one.reduce_s[0] == 200 * 4 / 10 - 2 * 1
    assert two.reduce_s[0] == 200 * 4 / 10 - 2 * 2 * 1


def test_what_the_root_gathers_has_nothing_beside_it():
    """A layer's 2 s of gathering hide behind 9 s of computing; the root's 4 s do not, nor its 8 s of reduction.

    Of the layers the first gathering and the last reduction show, 2 + 4 s; a root has its own in every micro-batch:
    4 s forward, 4 s again and 8 s of reduction backward.
    """
    data = SHARED._replace(level=3, each_layer=True, reduces_each=True)
    layer, head = (block(), cost(9, 9, 9), 1), (block("head", 20), cost(50, 60, 70), 1)
    in_root = (replace(head[0], root_elements=20), *head[1:])
    apart = step([[[layer, head]]], num_micro_batches=1, data=data)
    together = step([[[layer, in_root]]], num_micro_batches=1, data=data)
    assert apart.step_s == 27 + 180 + 2 + 4
    assert together.step_s - apart.step_s == 4 + (4 + 8)
    assert (together.gather_s, together.reduce_s) == (apart.gather_s, apart.reduce_s) == ((2.0,), (4.0,))
