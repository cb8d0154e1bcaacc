"""What einops does, foretold: shapes, strides, storages, values; bytes and FLOPs by hand."""

import random

import einops
import pytest
import torch

from torchledger.ops.pattern import REDUCTIONS, PatternError, transform


def grouped(axes, rng):
    """Axes in groups of one, two or three; now and then a group of none."""
    groups = []
    while axes:
        count = rng.choice([1, 1, 1, 2, 3])
        groups.append(axes[:count])
        axes = axes[count:]
        if rng.random() < 0.08:
            groups.append([])
    return groups


def written(groups, rng):
    return " ".join(
        group[0] if len(group) == 1 else "1" if not group and rng.random() < 0.5 else f"({' '.join(group)})"
        for group in groups
    )


def drawn(operation, rng):
    """A pattern of an operation, the sizes of its axes, and the shape that it takes."""
    axes = [f"a{number}" for number in range(rng.randint(1, 5))]
    sizes = {axis: rng.choice([1, 2, 2, 3, 4]) for axis in axes}
    right = list(axes)
    if rng.random() < 0.7:
        rng.shuffle(right)
    if operation == "repeat":
        for number in range(rng.randint(0, 2)):
            sizes[f"n{number}"] = rng.choice([1, 2, 3])
            right.insert(rng.randint(0, len(right)), f"n{number}")
    elif operation != "rearrange":
        right = [axis for axis in right if rng.random() < 0.6]
    left = grouped(axes, rng)
    shape = []
    for group in left:
        shape.append(1)
        for axis in group:
            shape[-1] *= sizes[axis]
    return f"{written(left, rng)} -> {written(grouped(right, rng), rng)}", sizes, shape


def asked_of_einops(x, pattern, operation, sizes):
    if operation in {"rearrange", "repeat"}:
        return getattr(einops, operation)(x, pattern, **sizes)
    return einops.reduce(x, pattern, operation, **sizes)


def test_einops_does_what_is_foretold(strided):
    """1,500 drawn patterns on drawn tensors: shape and stride, and one storage exactly where a view is told.

    Also whether `.contiguous()` copies after it; and the torch code gives the same values in the same places.
    """
    rng = random.Random(6)
    views = 0
    for _ in range(1_500):
        operation = rng.choice(["rearrange", "rearrange", "repeat", *REDUCTIONS])
        pattern, sizes, shape = drawn(operation, rng)
        x = strided(shape, rng, torch.bool if operation in {"any", "all"} else torch.float64)
        y = asked_of_einops(x, pattern, operation, sizes)
        told = transform(pattern, operation, sizes, shape=x.shape, stride=x.stride(), element_bytes=x.element_size())
        assert (told.after.shape, told.after.stride) == (tuple(y.shape), y.stride()), (pattern, sizes, x.stride())
        shares = x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
        assert told.is_view == shares, (pattern, sizes, x.stride())
        assert (y.contiguous().data_ptr() != y.data_ptr()) == bool(told.contiguous_pieces)
        z = eval(told.code, {"x": x})  # noqa: S307 - our own code
        assert z.stride() == y.stride()
        assert torch.equal(z, y)
        views += shares
    assert 300 < views < 1_200


def test_as_many_copies_as_torch_makes(strided, watched):
    """Each copy that is told is one `clone` of torch, of as many elements."""
    rng = random.Random(7)
    for _ in range(300):
        operation = rng.choice(["rearrange", "repeat", "sum"])
        pattern, sizes, shape = drawn(operation, rng)
        x = strided(shape, rng)
        with watched() as seen:
            asked_of_einops(x, pattern, operation, sizes)
        told = transform(pattern, operation, sizes, stride=x.stride(), element_bytes=8)
        assert [step.pieces[0].work.bytes_written // 8 for step in told.copies] == seen.copies


def test_heads_apart_are_a_view_and_heads_together_a_copy():
    """Splitting heads moves nothing; joining them moves b·s·h·d elements of 2 bytes, once read and once written."""
    sizes = {"b": 4, "s": 1024, "h": 8, "d": 64}
    apart = transform("b s (h d) -> b h s d", "rearrange", sizes, element_bytes=2)
    assert apart.is_view
    assert apart.code == "x.view(4, 1024, 8, 64).permute(0, 2, 1, 3)"
    together = transform("b h s d -> b s (h d)", "rearrange", sizes, element_bytes=2)
    (step,) = together.copies
    assert step.pieces[0].work.bytes_read == step.pieces[0].work.bytes_written == 4 * 1024 * 8 * 64 * 2
    assert "joins h and d" in step.reason
    assert together.contiguous_pieces == ()  # the copy is contiguous already


def test_repeated_heads_are_a_view_until_they_are_joined():
    """A new axis has stride 0; joined with its neighbour each of 2·8·3 elements is written 4 times, and read once."""
    sizes = {"b": 2, "k": 8, "s": 3, "g": 4}
    apart = transform("b k s -> b k g s", "repeat", sizes)
    assert apart.is_view
    assert apart.after.stride == (24, 3, 0, 1)
    (copy,) = transform("b k s -> b (k g) s", "repeat", sizes).pieces
    assert (copy.work.bytes_read, copy.work.bytes_written) == (4 * 2 * 8 * 3, 4 * 2 * 8 * 3 * 4)


@pytest.mark.parametrize(
    ("name", "flops", "transcendentals", "written_bytes"),
    [
        ("sum", 6 * (5 - 1), 0, 4 * 6),
        ("mean", 6 * (5 - 1), 6, 4 * 6),  # and a division a row
        ("max", 6 * (5 - 1), 0, 4 * 6),
        ("any", 6 * (5 - 1), 0, 6),  # truth takes a byte
    ],
)
def test_a_reduction_of_six_rows_of_five(name, flops, transcendentals, written_bytes):
    """A row of n takes n - 1 operations, every element read once; the middle axis goes without a copy."""
    told = transform("b s d -> b d", name, {"b": 2, "s": 5, "d": 3})
    (piece,) = told.pieces
    assert (piece.work.flops_full, piece.work.transcendentals) == (flops, transcendentals)
    assert (piece.work.bytes_read, piece.work.bytes_written) == (4 * 2 * 5 * 3, written_bytes)
    assert told.copies == ()


def test_prod_goes_one_dimension_at_a_time():
    """Torch multiplies over one dimension: 24 elements to 6 to 2; 18 + 4 = 2·(12 - 1) multiplications in all."""
    told = transform("b h w -> b", "prod", {"b": 2, "h": 3, "w": 4})
    assert told.code == "x.prod(dim=2).prod(dim=1)"
    assert sum(piece.work.flops_full for piece in told.pieces) == 2 * (12 - 1)


def test_sizes_follow_from_the_shape():
    """What a shape tells need not be said; `...` needs it."""
    told = transform("b (h d) ... -> ... h b d", "rearrange", {"h": 2}, shape=(3, 8, 5, 7))
    assert told.after.shape == (5, 7, 2, 3, 4)
    assert told.sizes == {"b": 3, "h": 2, "d": 4, "...0": 5, "...1": 7}


@pytest.mark.parametrize(
    ("sizes", "shape", "says"),
    [
        ({}, None, ["4 sizes are missing; add b=... s=... h=... d=..."]),
        ({"b": 2, "q": 3}, None, ["q is no axis", "3 sizes are missing; add s=... h=... d=..."]),
        ({"h": 3}, (2, 5, 8), ["cannot be cut by 3"]),
        ({"h": 2, "d": 3, "b": 9}, (2, 5, 8), ["(b) is 9 by the sizes and 2", "(h d) is 6 by the sizes and 8"]),
        ({}, (2, 5, 8), ["2 sizes are missing; add h=... d=..."]),
        ({"h": 2}, (2, 5), ["3 dimensions"]),
    ],
)
def test_every_size_that_does_not_fit_is_told_at_once(sizes, shape, says):
    with pytest.raises(PatternError) as told:
        transform("b s (h d) -> b h s d", "rearrange", sizes, shape=shape)
    lines = str(told.value).splitlines()
    assert len(lines) == len(says)
    assert all(part in line for part, line in zip(says, lines, strict=True))


def test_an_open_pattern_needs_a_shape_and_a_reduction_a_name():
    with pytest.raises(PatternError, match="give the shape"):
        transform("b ... -> ... b", "rearrange", {"b": 2})
    with pytest.raises(PatternError, match="at least 2 dimensions"):
        transform("a b ... -> b a ...", "rearrange", {}, shape=(2,))
    with pytest.raises(PatternError, match="einops has min, max, sum"):
        transform("a -> ", "median", {"a": 2})


@pytest.mark.parametrize(("operation", "element_bytes"), [("sum", 8), ("prod", 8), ("max", 1), ("any", 1), ("all", 1)])
@pytest.mark.parametrize("pattern", ["a b c -> a", "a b c -> (c a b)", "a b c -> a c"])
def test_bytes_of_reduced_integers_are_torchs(operation, element_bytes, pattern):
    """An element of the result is as wide as einops's; where no axis goes, nothing is reduced and it stays."""
    x = torch.ones(2, 3, 4, dtype=torch.int8)
    told = transform(pattern, operation, {}, shape=x.shape, element_bytes=1, summed_bytes=8)
    assert told.result_element_bytes == einops.reduce(x, pattern, operation).element_size()
    if "(" not in pattern:
        assert told.result_element_bytes == element_bytes
        assert sum(piece.work.bytes_written for piece in told.steps[-1].pieces) == (
            told.after.num_elements * element_bytes
        )


def test_any_without_an_axis_to_take_is_a_copy_of_the_same_width():
    """2·3 floats in another order: 24 bytes, read and written, and none of them a bool."""
    told = transform("a b -> (b a)", "any", {"a": 2, "b": 3})
    assert (told.result_element_bytes, told.pieces[0].work.bytes_written) == (4, 2 * 3 * 4)
