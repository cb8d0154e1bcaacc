import random

import pytest

from torchledger.formats.strides import StrideError
from torchledger.ops.pattern.layout import Layout, product_layout


def of(x):
    return Layout(tuple(x.shape), tuple(x.stride()))


def test_every_change_is_torchs(strided):
    """permute, unsqueeze, expand, diagonal and view give the shapes and strides that torch gives."""
    rng = random.Random(1)
    for _ in range(300):
        shape = [rng.choice([1, 2, 3, 3]) for _ in range(rng.randint(2, 4))]
        x = strided(shape, rng)
        order = rng.sample(range(x.dim()), x.dim())
        assert of(x).permuted(order) == of(x.permute(order))
        place = rng.randint(0, x.dim())
        assert of(x).unsqueezed(place) == of(x.unsqueeze(place))
        wanted = [4 if size == 1 else size for size in shape]
        assert of(x).expanded(wanted) == of(x.expand(wanted))
        first, second = sorted(rng.sample(range(x.dim()), 2))
        if shape[first] == shape[second]:
            assert of(x).diagonal(first, second) == of(x.diagonal(0, first, second).movedim(-1, first))
        try:
            viewed = of(x.view(-1))
        except RuntimeError:
            viewed = None
        assert of(x).viewed((x.numel(),)) == viewed


def test_a_product_lies_where_torch_puts_it(strided):
    """Dimensions of a product of broadcast tensors are ordered by strides; 600 drawn pairs, strides of 1s included."""
    rng = random.Random(2)
    for _ in range(600):
        shape = [rng.choice([1, 2, 3]) for _ in range(rng.randint(1, 4))]
        one, two = (strided([rng.choice([size, size, 1]) for size in shape], rng) for _ in range(2))
        assert product_layout(of(one), of(two)) == of(one * two), (of(one), of(two))


def test_elements_and_distinct_elements():
    """An expanded dimension holds one element however often it is seen: 5·3 indices, 3 elements."""
    layout = Layout((5, 3), (0, 1))
    assert (layout.num_elements, layout.num_distinct, layout.is_contiguous) == (15, 3, False)
    assert Layout.contiguous((5, 3)).is_contiguous


def test_shape_and_stride_are_of_one_length():
    with pytest.raises(StrideError, match="no stride of 1"):
        Layout((2, 3), (1,))
