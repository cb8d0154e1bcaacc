"""`Value`: a tensor by its sizes, and `Activation`: one that is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torchledger.formula.layout import Sizes, contiguous
from torchledger.ledger import Amount

#: Bytes of an element. FP64 is what autograd wraps Python's numbers in. Blocks of 32 elements share a scale of a byte
#: in MXFP8 (OCP Microscaling Formats v1.0, section 5.2), blocks of 16 in NVFP4 (arXiv:2509.25149, section 2).
ELEMENT_BYTES: Mapping[str, Amount] = {
    "fp64": 8,
    "fp32": 4,
    "bf16": 2,
    "fp16": 2,
    "fp8": 1,
    "mxfp8": 1 + 1 / 32,
    "nvfp4": 1 / 2 + 1 / 16,
    "int64": 8,
    "int32": 4,
    "bool": 1,
}


def num_bytes(shape: Sizes, number_format: str) -> Amount:
    """Bytes of a dense tensor.

    >>> num_bytes((2, 32), "mxfp8")
    66
    """
    product: Amount = ELEMENT_BYTES[number_format]
    for size in shape:
        product = product * size
    return int(product) if isinstance(product, float) else product


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor by its sizes.

    Attributes:
        shape: sizes.
        strides: in elements.
        number_format: format of its elements.
        storage: index of the storage it lies in; views share one.
        requires_grad: whether a gradient flows back to it.
        is_cheap: whether a compiler makes it again in the backward pass rather than keep it.
    """

    shape: Sizes
    strides: Sizes
    number_format: str
    storage: int
    requires_grad: bool = True
    is_cheap: bool = False

    @property
    def num_elements(self) -> Amount:
        """Product of its sizes."""
        product: Amount = 1
        for size in self.shape:
            product = product * size
        return product

    @property
    def element_bytes(self) -> Amount:
        """Bytes of one element."""
        return ELEMENT_BYTES[self.number_format]

    def permuted(self, *order: int) -> Value:
        """Its dimensions in another order; the storage is the same."""
        return replace(self, shape=tuple(self.shape[i] for i in order), strides=tuple(self.strides[i] for i in order))

    def parted(self, *sizes: Amount) -> Value:
        """Its last dimension as several."""
        steps = tuple(step * self.strides[-1] for step in contiguous(sizes))
        return replace(self, shape=(*self.shape[:-1], *sizes), strides=(*self.strides[:-1], *steps))

    def sliced(self, size: Amount) -> Value:
        """A part of its last dimension, in the same storage."""
        return replace(self, shape=(*self.shape[:-1], size))

    def repeated(self, dimension: int, times: Amount) -> Value:
        """A new dimension that repeats it without a copy (stride 0)."""
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(dimension, times)
        strides.insert(dimension, 0)
        return replace(self, shape=tuple(shape), strides=tuple(strides))


@dataclass(frozen=True, slots=True)
class Activation:
    """A storage kept for the backward pass.

    Attributes:
        name: module and what it is (`layers.*.mlp.up: output`).
        shape: sizes of the tensor it was made for.
        number_format: format of its elements.
        num_bytes: bytes of one of them.
        times: how many there are.
        kept_by: the operation that keeps it first.
    """

    name: str
    shape: Sizes
    number_format: str
    num_bytes: Amount
    times: Amount
    kept_by: str

    @property
    def total_bytes(self) -> Amount:
        """Bytes of all of them."""
        return self.num_bytes * self.times
