"""When merging dimensions takes a copy."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.formula.layout import contiguous, merged


def _offsets(shape, strides):
    """Where each element lies, in the order of its indices."""
    ranges = [range(size) for size in shape]
    return [sum(i * s for i, s in zip(index, strides, strict=True)) for index in itertools.product(*ranges)]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_contiguous_elements_lie_one_after_the_other(shape):
    offsets = _offsets(shape, contiguous(shape))
    assert offsets == list(range(len(offsets)))


@st.composite
def tensors(draw):
    """A permuted, maybe repeated tensor, and how its dimensions are to be grouped."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    order = draw(st.permutations(range(len(shape))))
    strides = contiguous(shape)
    shape, strides = [shape[i] for i in order], [strides[i] for i in order]
    if draw(st.booleans()):
        place = draw(st.integers(0, len(shape)))
        shape.insert(place, draw(st.integers(1, 3)))
        strides.insert(place, 0)
    groups, left = [], len(shape)
    while left:
        groups.append(draw(st.integers(1, left)))
        left -= groups[-1]
    return tuple(shape), tuple(strides), groups


@given(tensors())
def test_a_view_finds_every_element_where_it_was(tensor):
    """Where `merged` says that no copy is needed, its strides reach the same places in the same order."""
    shape, strides, groups = tensor
    sizes, steps = merged(shape, strides, groups)
    if steps is not None:
        assert _offsets(sizes, steps) == _offsets(shape, strides)


@given(tensors())
def test_a_copy_is_made_only_where_no_strides_exist(tensor):
    """Where it says copy, no stride of the merged dimension reaches the places: they are not evenly spaced."""
    shape, strides, groups = tensor
    _, steps = merged(shape, strides, groups)
    if steps is None:
        start, spaced = 0, []
        for count in groups:
            offsets = _offsets(shape[start : start + count], strides[start : start + count])
            spaced.append(len({b - a for a, b in itertools.pairwise(offsets)}) <= 1)
            start += count
        assert not all(spaced)


def test_sizes_may_be_letters():
    sympy = pytest.importorskip("sympy")
    B, T, H, d = sympy.symbols("B T H d", positive=True, integer=True)
    strides = contiguous((B, T, H, d))
    assert strides == (T * H * d, H * d, d, 1)
    assert merged((B, T, H, d), strides, (1, 1, 2)) == ((B, T, H * d), (T * H * d, H * d, 1))
    assert merged((B, H, T, d), (T * H * d, d, H * d, 1), (2, 1, 1))[1] is None
