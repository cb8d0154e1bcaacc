"""The order of a pipeline's pieces is the one that torch's own schedules run."""

import pytest
from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B, _ComputationType

from torchledger.planner.schedule_order import order, runs_in_groups

KINDS = {_ComputationType.FORWARD: "forward", _ComputationType.FULL_BACKWARD: "backward"}


def of_torch(num_stages, num_chunks, number, rank):
    """What torch's schedule has a rank run: kind, chunk and micro-batch."""
    schedule = object.__new__(ScheduleInterleaved1F1B)  # made with stages, it would want their modules and processes
    schedule.pp_group_size, schedule.n_local_stages, schedule._n_microbatches = num_stages, num_chunks, number
    schedule.number_of_rounds = max(1, number // num_stages)
    schedule.microbatches_per_round = number // schedule.number_of_rounds
    actions = schedule._calculate_single_rank_operations(rank)
    return [
        (KINDS[each.computation_type], each.stage_index // num_stages, each.microbatch_index)
        for each in actions
        if each is not None
    ]


@pytest.mark.parametrize("num_stages", [2, 3, 4])
@pytest.mark.parametrize("num_chunks", [2, 3])
def test_interleaved_chunks_run_in_the_order_of_torch(num_stages, num_chunks):
    """Micro-batches in groups of the stages, and in the larger equal groups that torch makes of other numbers."""
    numbers = [each for each in range(5 * num_stages) if runs_in_groups("equal", num_stages, each)]
    assert any(number % num_stages for number in numbers)
    for number in numbers:
        for rank, turns in enumerate(order("interleaved", num_stages, num_chunks, number)):
            assert [tuple(piece) for (piece,) in turns] == of_torch(num_stages, num_chunks, number, rank)
