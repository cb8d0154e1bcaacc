"""`BlockFormat`: narrow elements that share a scale, and what an element costs with its share of it."""

from dataclasses import dataclass
from fractions import Fraction

from torchledger.formats.format import NumberFormat
from torchledger.formats.integer import IntegerFormat


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """Elements of a narrow format in blocks along the last axis, each block with a scale.

    The value of an element is its own, times the scale of its block, times the scale of the tensor where there is one
    (OCP Microscaling Formats 1.0, section 5.1; for NVFP4 see `source`).

    Attributes:
        name: what this project calls it.
        title: what it is.
        element: the format of the elements.
        scale: the format of a block's scale: E8M0, or E4M3 in NVFP4.
        block_size: elements that share a scale.
        tensor_scale: the format of the scale of the whole tensor, if there is one (FP32 in NVFP4).
        aliases: other spellings.
        use: what it is used for.
        source: where its definition stands.
    """

    name: str
    title: str
    element: NumberFormat | IntegerFormat
    scale: NumberFormat
    block_size: int
    tensor_scale: NumberFormat | None
    aliases: tuple[str, ...]
    use: str
    source: str

    @property
    def bits_per_element(self) -> Fraction:
        """Bits of an element with its share of the block's scale: 8 + 8/32 = 8.25 for MXFP8, 4 + 8/16 for NVFP4.

        The scale of the tensor is not in it: it is one number for all.
        """
        return self.element.bits + Fraction(self.scale.bits, self.block_size)

    @property
    def bytes_per_element(self) -> float:
        """`bits_per_element` in bytes."""
        return float(self.bits_per_element / 8)

    @property
    def max(self) -> float:
        """The largest value that any element can have, the largest scales included."""
        largest = self.element.max * self.scale.max
        return largest if self.tensor_scale is None else largest * self.tensor_scale.max

    @property
    def smallest(self) -> float:
        """The smallest positive value that any element can have, under the smallest scales."""
        element = self.element.step if isinstance(self.element, IntegerFormat) else self.element.smallest_subnormal
        tensor = 1.0 if self.tensor_scale is None else self.tensor_scale.smallest_subnormal
        return element * self.scale.smallest_subnormal * tensor
