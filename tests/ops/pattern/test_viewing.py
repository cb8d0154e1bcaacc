import random
import re
from math import prod

import pytest

from torchledger.formats.strides import StrideError
from torchledger.ops.pattern import Layout, copied, flattest, view, why_no_view


def drawn_shape(count, rng):
    """A shape of so many elements."""
    shape = []
    while count > 1 and rng.random() < 0.8:
        size = rng.choice([each for each in range(1, count + 1) if count % each == 0])
        shape.append(size)
        count //= size
    return (*shape, count)


def test_a_view_is_there_exactly_where_torch_has_one(strided):
    """600 drawn tensors asked for drawn shapes: the same strides, or no view on either side."""
    rng = random.Random(3)
    views = 0
    for _ in range(600):
        x = strided([rng.choice([1, 2, 3, 4]) for _ in range(rng.randint(1, 4))], rng)
        wanted = drawn_shape(x.numel(), rng)
        found = view(x.shape, wanted, stride=x.stride())
        try:
            torchs = x.view(wanted)
        except RuntimeError:
            assert found.after is None
            assert found.pieces
            assert found.reason
        else:
            assert found.after == Layout(wanted, torchs.stride())
            assert (found.pieces, found.reason) == ((), "")
            views += 1
    assert 100 < views < 500


def test_the_reason_names_two_dimensions_that_do_not_step_as_one(strided):
    """Whatever is drawn, the outer stride that is told is the tensor's, and is not the one that would go on."""
    rng = random.Random(4)
    told = 0
    for _ in range(300):
        x = strided([rng.choice([2, 3]) for _ in range(3)], rng)
        found = view(x.shape, (x.numel(),), stride=x.stride())
        if found.after is None:
            parts = re.search(r"dimensions (\d+) and (\d+), .* has stride (\d+), (\d+) would", found.reason)
            outer, inner, step, needed = (int(part) for part in parts.groups())
            assert inner == outer + 1
            assert x.stride(outer) == step != needed
            told += 1
    assert told > 50


def test_dimensions_can_be_named():
    """Heads apart from tokens cannot be joined: one step of h is 6 elements, and 2 would go on from d."""
    layout = Layout.contiguous((4, 3, 2)).permuted((1, 0, 2))  # s, h, d of a tensor that lies h, s, d
    reason = why_no_view(layout, (3, 8), ("s", "h", "d"))
    assert reason == "size 8 of (3, 8) joins h and d, which do not step as one: h has stride 6, 2 would go on from d"


def test_a_size_of_one_joins_nothing():
    """In (1, 6) of a transpose it is the 6 that joins, not the 1 before it."""
    assert why_no_view(Layout((2, 3), (1, 2)), (1, 6)).startswith("size 6 of (1, 6) joins")


def test_the_flattest_view_is_a_view_with_the_fewest_dimensions(strided):
    """Torch takes it, and no two of its neighbours can be joined."""
    rng = random.Random(5)
    for _ in range(200):
        x = strided([rng.choice([2, 3]) for _ in range(rng.randint(1, 4))], rng)
        flat = flattest(Layout(tuple(x.shape), x.stride()))
        assert x.view(flat.shape).stride() == flat.stride
        for place in range(len(flat.shape) - 1):
            joined = (*flat.shape[:place], prod(flat.shape[place : place + 2]), *flat.shape[place + 2 :])
            with pytest.raises(RuntimeError):
                x.view(joined)


def test_a_copy_reads_what_is_there_once():
    """4 rows that are one row of 3 in storage: 3 elements of 2 bytes read, 12 written."""
    (piece,) = copied(Layout((4, 3), (0, 1)), 2)
    assert (piece.work.bytes_read, piece.work.bytes_written, piece.kind) == (6, 24, "copy")


def test_another_number_of_elements_is_refused():
    with pytest.raises(StrideError, match="7 elements"):
        view((2, 3), (7,))
    with pytest.raises(StrideError, match="no stride of 1"):
        view((2, 3), (6,), stride=(1,))
