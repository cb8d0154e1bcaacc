"""Stride arithmetic against PyTorch's own, on drawn shapes, strides and views."""

import itertools
from math import prod

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from torchledger.formats import strides
from torchledger.formats.strides import StrideError

SIZES = st.lists(st.integers(0, 6), max_size=5).map(tuple)


@st.composite
def strided(draw) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and stride of a tensor, one time in two by permuting, slicing and expanding, else any."""
    shape = draw(st.lists(st.integers(1, 5), min_size=0, max_size=4).map(tuple))
    if draw(st.booleans()):
        return shape, tuple(draw(st.integers(0, 12)) for _ in shape)
    tensor = torch.empty(shape)
    if shape:
        tensor = tensor.permute(draw(st.permutations(range(len(shape)))))
        dimension = draw(st.integers(0, len(shape) - 1))
        tensor = tensor.narrow(dimension, 0, draw(st.integers(1, tensor.shape[dimension])))
        tensor = tensor.unsqueeze(dimension) if draw(st.booleans()) else tensor
        sizes = [draw(st.integers(1, 3)) if size == 1 else size for size in tensor.shape]
        tensor = tensor.expand(sizes)
    return tuple(tensor.shape), tensor.stride()


@st.composite
def factored(draw, count: int) -> tuple[int, ...]:
    """A shape of so many elements, ones among its sizes."""
    left, sizes = count, []
    while left > 1:
        size = draw(st.sampled_from([d for d in range(2, left + 1) if left % d == 0]))
        sizes.append(size)
        left //= size
    for _ in range(draw(st.integers(0, 2))):
        sizes.insert(draw(st.integers(0, len(sizes))), 1)
    return tuple(sizes)


def made(shape, stride) -> torch.Tensor:
    return torch.empty(strides.extent(shape, stride)).as_strided(shape, stride)


@given(SIZES)
def test_contiguous_stride(shape):
    """The stride that `torch.empty` gives."""
    assert strides.contiguous_stride(shape) == torch.empty(shape).stride()


@given(strided())
def test_is_contiguous(drawn):
    """`Tensor.is_contiguous` says the same."""
    assert strides.is_contiguous(*drawn) == made(*drawn).is_contiguous()


@given(strided())
def test_dense_is_what_clone_keeps(drawn):
    """`clone` keeps the strides of dense tensors; torch calls them non-overlapping and dense."""
    tensor = made(*drawn)
    assert strides.is_dense(*drawn) == torch.ops.aten.is_non_overlapping_and_dense(tensor)


@settings(max_examples=600)
@given(st.data())
def test_view_stride_is_torchs(data):
    """`view` works exactly where a stride is found, and has that stride; elsewhere it raises."""
    shape, stride = data.draw(strided())
    new_shape = data.draw(factored(prod(shape)))
    tensor = made(shape, stride)
    found = strides.view_stride(shape, stride, new_shape)
    if found is None:
        with pytest.raises(RuntimeError, match="view size is not compatible"):
            tensor.view(new_shape)
    else:
        assert tensor.view(new_shape).stride() == found


@given(SIZES.filter(lambda shape: 0 in shape), SIZES.filter(lambda shape: 0 in shape))
def test_view_stride_of_nothing(shape, new_shape):
    """An empty tensor has every empty shape, with the strides that torch gives it."""
    tensor = torch.empty(shape)
    assert strides.view_stride(shape, tensor.stride(), new_shape) == tensor.view(new_shape).stride()


@given(strided())
def test_overlaps_and_distinct(drawn):
    """Two indices share an element exactly where there are fewer addresses than indices; counted one by one."""
    shape, stride = drawn
    indices = list(itertools.product(*(range(size) for size in shape)))
    addresses = {strides.address(index, stride) for index in indices}
    assert strides.overlaps(shape, stride) == (len(addresses) < len(indices))
    assert strides.num_distinct(shape, stride) == len(addresses)
    assert strides.extent(shape, stride) == max(addresses) + 1


@given(strided(), st.integers(0, 3))
def test_address(drawn, offset):
    """Torch reads the same element of the storage."""
    shape, stride = drawn
    tensor = torch.arange(offset + strides.extent(shape, stride)).as_strided(shape, stride, offset)
    for index in itertools.islice(itertools.product(*(range(size) for size in shape)), 20):
        assert tensor[index].item() == strides.address(index, stride, offset)


@given(strided())
def test_runs_can_be_had_and_not_joined(drawn):
    """A tensor can be viewed as its runs; and no two neighbouring runs can be viewed as one."""
    shape, stride = drawn
    runs = strides.runs(shape, stride)
    counts = [count for count, _ in runs]
    tensor = made(shape, stride).view(counts)
    for first, second in itertools.pairwise(range(len(counts))):
        joined = [*counts[:first], counts[first] * counts[second], *counts[second + 1 :]]
        assert 1 in counts or strides.view_stride(tensor.shape, tensor.stride(), joined) is None


@settings(max_examples=600)
@given(strided())
@example(((2, 1), (1, 1)))
@example(((2, 2, 2, 3), (0, 6, 8, 10)))  # an expanded dimension, which comes out as the outermost
@example(((2, 3, 4, 2, 0), (1, 2, 2, 2, 8)))
def test_clone_stride(drawn):
    """What `clone` gives, expanded and overlapping tensors included; a pointwise result lies likewise, ones aside."""
    tensor = made(*drawn)
    found = strides.clone_stride(*drawn)
    assert found == tensor.clone().stride()
    if tensor.numel():
        moving = [place for place, size in enumerate(tensor.shape) if size > 1]
        result = tensor.exp().stride()
        assert [found[place] for place in moving] == [result[place] for place in moving]


@settings(max_examples=400)
@given(st.data())
def test_carried_is_the_same_elements(data):
    """A view of a copy, carried to the original, has the same values; a copy that is the original always carries."""
    shape, stride = data.draw(strided())
    original = torch.arange(strides.extent(shape, stride)).as_strided(shape, stride)
    copy = original.contiguous().clone()
    view = copy.view(data.draw(factored(prod(shape))))
    if view.dim():
        view = view.permute(data.draw(st.permutations(range(view.dim()))))
        dimension = data.draw(st.integers(0, view.dim() - 1))
        start = data.draw(st.integers(0, view.shape[dimension] - 1))
        view = view.narrow(dimension, start, data.draw(st.integers(1, view.shape[dimension] - start)))
    found = strides.carried(shape, stride, view.shape, view.stride(), view.storage_offset())
    if found is not None:
        assert torch.equal(original.as_strided(view.shape, found[0], found[1]), view)
    else:
        assert not original.is_contiguous()


def test_overlaps_is_fast_on_large_tensors():
    """Sizes of real models are settled at once: windows, an expanded row, batches of slices."""
    assert strides.overlaps((10**9, 3), (1, 1))
    assert strides.overlaps((10**6, 10**6), (0, 1))
    assert not strides.overlaps((32, 4096, 128), (4096 * 384, 384, 1))
    assert strides.num_distinct((10**9, 3), (1, 1)) is None


def test_resolved_shape():
    """-1 is what is left; mistakes are named."""
    assert strides.resolved_shape(24, (2, -1, 3)) == (2, 4, 3)
    assert strides.resolved_shape(24, (24,)) == (24,)
    for shape, said in [((-1, -1), "only one"), ((5, -1), "24 / 5"), ((0, -1), "anything"), ((5, 5), "25 elements")]:
        with pytest.raises(StrideError, match=said):
            strides.resolved_shape(24, shape)


def test_what_is_refused():
    """Strides of another length, negative ones, sizes that are none, shapes of another number of elements."""
    for shape, stride in [((2, 3), (1,)), ((2,), (-1,)), ((-2,), (1,)), ((2.0,), (1,))]:
        with pytest.raises(StrideError):
            strides.is_contiguous(shape, stride)
    with pytest.raises(StrideError, match="6 elements"):
        strides.view_stride((2, 3), (3, 1), (7,))
    with pytest.raises(StrideError, match="dimensions"):
        strides.address((1,), (1, 2))
