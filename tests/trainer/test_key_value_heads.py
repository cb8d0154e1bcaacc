"""Which ranks hold which key-value head; that they compute the same is tests/agree/test_ranks.py."""

import pytest
import torch
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from torchledger.tracer import ranks
from torchledger.trainer.key_value_heads import HeadLayout
from torchledger.trainer.process_group import mesh_of


@pytest.mark.parametrize(
    ("num_heads", "held"),
    [
        (8, [[2 * rank, 2 * rank + 1] for rank in range(4)]),
        (4, [[0], [1], [2], [3]]),
        (2, [[0], [0], [1], [1]]),
        (1, [[0]] * 4),
    ],
)
def test_ranks_next_to_each_other_hold_the_same_head(num_heads, held):
    """Four ranks: two heads each of eight, one of four; of two the first two ranks have the first, of one all."""
    found = []
    for rank in range(4):
        with ranks(4, rank):
            layout = HeadLayout.of(mesh_of("cpu", {"tensor": 4}), num_heads)
            rows = distribute_tensor(torch.arange(num_heads), layout.mesh, layout.placements, src_data_rank=None)
            found.append(rows.to_local().tolist())
            assert layout.copies == max(1, 4 // num_heads)
    assert found == held


def test_heads_are_laid_out_within_each_replica():
    """Of two replicas of four ranks the sixth rank is the second one of the other replica, and has the first head."""
    with ranks(8, 5):
        mesh = mesh_of("cpu", {"data": 2, "tensor": 4})["tensor"]
        layout = HeadLayout.of(mesh, 2)
        assert layout.placements == (Shard(0), Replicate())
        assert layout.mesh.get_coordinate() == (0, 1)
        assert layout.mesh.mesh.tolist() == [[4, 5], [6, 7]]
