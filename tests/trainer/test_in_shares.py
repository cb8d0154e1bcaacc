"""Parts of tensors as one rank of four sees them; sums over ranks are compared with one process in tests/agree."""

import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from torchledger.trainer.in_shares import Shares, has_part, mine, put

WHOLE = torch.arange(35.0).view(7, 5)


@pytest.fixture
def mesh():
    """Two by two ranks, of which this is the last: collectives do nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=4)
    try:
        yield init_device_mesh("cpu", (2, 2))
    finally:
        dist.destroy_process_group()


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def shared(mesh, *placements):
    return distribute_tensor(torch.full_like(WHOLE, -1), mesh, placements, src_data_rank=None)


@pytest.mark.parametrize(
    ("placements", "rows", "columns"),
    [
        ((Replicate(), Shard(0)), slice(4, 7), slice(0, 5)),
        ((Shard(0), Shard(1)), slice(4, 7), slice(3, 5)),
        ((Shard(0), Shard(0)), slice(6, 7), slice(0, 5)),  # 4 and 3 rows, the 3 again 2 and 1
        ((Replicate(), Replicate()), slice(0, 7), slice(0, 5)),
    ],
)
def test_a_rank_copies_what_it_has_a_place_for(mesh, placements, rows, columns):
    """Of the whole, and of pieces that together are the whole, whatever their borders are."""
    tensor = shared(mesh, *placements)
    put(tensor, WHOLE)
    assert torch.equal(mine(tensor), WHOLE[rows, columns])
    pieces = shared(mesh, *placements)
    for first in (0, 3):
        for left in (0, 4):
            piece = WHOLE[first : first + (3 if first == 0 else 4), left : left + (4 if left == 0 else 1)]
            put(pieces, piece, (first, left))
    assert torch.equal(mine(pieces), WHOLE[rows, columns])


def test_a_piece_of_other_ranks_is_not_read(mesh):
    """Rows 4 to 6 are this rank's: a piece of rows 0 to 3 is none of its business, one that ends with row 4 is."""
    tensor = shared(mesh, Shard(0), Replicate())
    assert not has_part(tensor, (4, 5), (0, 0))
    assert has_part(tensor, (5, 5), (0, 0))
    put(tensor, torch.full((4, 5), math.nan), (0, 0))
    assert torch.equal(mine(tensor), torch.full((3, 5), -1.0))


def test_a_state_is_shared_as_its_parameter_along_equal_dimensions(mesh):
    """Means of rows are shared as rows are, those of columns as columns are; 9 blocks go to ranks evenly."""
    shares = Shares.of(shared(mesh, Shard(0), Shard(1)))
    assert [tuple(shares.beside(size, torch.float32).to_local().shape) for size in ((7, 1), (1, 5))] == [(3, 1), (1, 2)]
    blocks = shares.in_turn(9, torch.float32)
    shares.keep(blocks, torch.arange(9.0))
    assert torch.equal(mine(blocks), torch.tensor([7.0, 8.0]))  # of 5 and 4 blocks, the 4 again 2 and 2


def test_what_is_whole_has_nobody_to_add_up_with(mesh):
    """A plain tensor is in no shares; of one that every rank holds whole, sums are sums already."""
    assert Shares.of(WHOLE) is None
    shares = Shares.of(shared(mesh, Replicate(), Replicate()))
    assert shares is None or shares.added([WHOLE], [0, 1])[0] is WHOLE
