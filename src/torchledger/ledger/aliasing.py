"""`Aliasing`: where a tensor's elements lie in its storage, who else lies there, what shapes it can be viewed as."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from torchledger.formats import strides
from torchledger.ledger import display


@dataclass(frozen=True, slots=True)
class Sharer:
    """Another tensor of the same storage.

    Attributes:
        name: what it is called.
        shape, stride, offset: its geometry, in elements of its own format.
        number_format: of its elements.
        num_shared_bytes: bytes from the first to the last that both reach, gaps included; 0 where they lie apart.
    """

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    number_format: str
    num_shared_bytes: int


@dataclass(frozen=True, slots=True)
class ViewAnswer:
    """Whether a tensor can be viewed as a shape.

    Attributes:
        shape: what was asked for, -1 replaced.
        stride: with which strides it can; `None` where it cannot.
        why: which dimensions a size would have to reach across, and why they do not step as one; "" where it can.
        instead: expressions that give that shape, with what they cost.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    why: str = ""
    instead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aliasing:
    """A tensor's place in its storage. Everything counts elements, where the name does not say bytes.

    Attributes:
        name: what it is called.
        shape: sizes.
        stride: how far the storage moves on for one step in each dimension.
        offset: where its first element lies.
        number_format: of its elements.
        element_bytes: of one element.
        storage_bytes: of the whole storage.
        shared_with: other tensors of that storage, of those that were asked about.
        views: answers to the shapes that were asked for.
    """

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    number_format: str
    element_bytes: int
    storage_bytes: int
    shared_with: tuple[Sharer, ...] = ()
    views: tuple[ViewAnswer, ...] = ()

    @property
    def num_elements(self) -> int:
        """Product of the sizes."""
        return prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Whether elements lie in row-major order without gaps."""
        return strides.is_contiguous(self.shape, self.stride)

    @property
    def is_dense(self) -> bool:
        """Whether they fill a stretch without gaps, in any order of dimensions."""
        return strides.is_dense(self.shape, self.stride)

    @property
    def overlaps(self) -> bool:
        """Whether two indices are one element of the storage: writing one writes the other."""
        return strides.overlaps(self.shape, self.stride)

    @property
    def num_distinct(self) -> int | None:
        """Elements of the storage that it reaches, `None` where they are too many to be counted."""
        return strides.num_distinct(self.shape, self.stride)

    @property
    def reach(self) -> tuple[int, int]:
        """The stretch of the storage that it lies in: first element and one past the last."""
        return self.offset, self.offset + strides.extent(self.shape, self.stride)

    @property
    def arithmetic(self) -> str:
        """Where element (i, j, ...) lies: `storage[3 + 4·i + j]`."""
        terms = [str(self.offset)] if self.offset else []
        for letter, step in zip(_letters(len(self.shape)), self.stride, strict=True):
            if step:
                terms.append(letter if step == 1 else f"{step}·{letter}")
        return f"storage[{' + '.join(terms) or '0'}]"

    def __str__(self) -> str:
        """The screen of it, where `view` has told how; one line otherwise."""
        drawn = display.render(self, "text")
        return drawn or f"{self.name}: shape {self.shape}, stride {self.stride}, offset {self.offset}"

    def _repr_html_(self) -> str | None:
        return display.render(self, "html")


def view_answer(shape: tuple[int, ...], stride: tuple[int, ...], new_shape: tuple[int, ...]) -> ViewAnswer:
    """Whether a tensor can be viewed as a shape; where not, why and what to write instead.

    Raises:
        StrideError: the new shape has another number of elements.
    """
    wanted = strides.resolved_shape(prod(shape), new_shape)
    found = strides.view_stride(shape, stride, wanted)
    if found is not None:
        return ViewAnswer(wanted, found)
    return ViewAnswer(wanted, None, _obstacle(shape, stride, wanted), _instead(shape, stride, wanted))


def _obstacle(shape: tuple[int, ...], stride: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """The first place, from inside, where a new size reaches from one run of dimensions into the next."""
    bounds = strides.run_bounds(shape, stride)
    dimension = len(wanted) - 1
    for (first, end), (count, step) in zip(reversed(bounds), reversed(strides.runs(shape, stride)), strict=True):
        covered, begun = 1, dimension
        while dimension >= 0 and (covered < count or wanted[dimension] == 1):
            covered *= wanted[dimension]
            dimension -= 1
        if covered != count:
            sizes = " · ".join(str(wanted[d]) for d in range(max(dimension + 1, 0), begun + 1))
            inner = f"dimension {first}" if end - first == 1 else f"dimensions {first} to {end - 1}"
            outer = first - 1
            return (
                f"{sizes} reaches beyond {inner}, {count:,} elements that step by {step}, into dimension {outer}: it "
                f"would have to step by {count} · {step} = {count * step:,} there, and steps by {stride[outer]:,}"
            )
    raise AssertionError("a view that cannot be has an obstacle")


def _instead(shape: tuple[int, ...], stride: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[str, ...]:
    found = [f"x.reshape({', '.join(map(str, wanted))})  # copies {prod(shape):,} elements, once"]
    order = sorted(range(len(shape)), key=lambda dimension: (-stride[dimension], dimension))
    if 0 not in stride and order != sorted(order):
        turned = [shape[dimension] for dimension in order], [stride[dimension] for dimension in order]
        if strides.view_stride(*turned, wanted) is not None:
            permuted = ", ".join(map(str, order))
            found.append(
                f"x.permute({permuted}).view({', '.join(map(str, wanted))})  # no copy, and the elements in the order "
                "of the storage, which is another one"
            )
    counts = ", ".join(str(count) for count, _ in strides.runs(shape, stride))
    found.append(f"x.view({counts})  # no copy: as far as dimensions can be joined")
    return tuple(found)


def _letters(count: int) -> tuple[str, ...]:
    return tuple("ijklmnpq"[:count]) if count <= len("ijklmnpq") else tuple(f"i{n}" for n in range(count))
