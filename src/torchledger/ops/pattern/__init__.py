"""What a pattern of axes does to tensors: view or copy, FLOPs, bytes, and the torch code that does the same.

`transform` is einops's `rearrange`, `repeat` and `reduce`; `einsum` is `torch.einsum`; `view` is `Tensor.view`. All are
arithmetic on shapes and strides, and do what einops 0.8 and PyTorch 2.13 do to the last stride, which the tests show
on drawn patterns and tensors.

    text.py         patterns: `b s (h d) -> b h s d`
    shape.py        shapes and sizes as text, as jaxtyping writes them
    layout.py       Layout: shape and stride, and what becomes of them
    viewing.py      whether a shape can be had as a view, and why not
    transform.py    rearrange, repeat, reduce, step by step
    equation.py     einsum equations, torch's and einops's
    path.py         the order of contracting three or more operands: torch's, and the best one by search
    contraction.py  what torch.einsum does to two operands: sums, copies, one batched matrix product
    einsum.py       an equation, pair by pair
    roofed.py       pieces under the two roofs of a chip
    errors.py       PatternError
"""

from torchledger.ops.pattern.contraction import Contraction, Operand, operand_of
from torchledger.ops.pattern.einsum import Einsum, einsum, operand_name, with_fewer_copies
from torchledger.ops.pattern.equation import Equation, parse_equation
from torchledger.ops.pattern.errors import PatternError
from torchledger.ops.pattern.layout import Layout
from torchledger.ops.pattern.path import Path, all_at_once, best, left_to_right
from torchledger.ops.pattern.roofed import Roofed, roofed
from torchledger.ops.pattern.shape import names_in, read_shape, read_sizes
from torchledger.ops.pattern.text import Pattern, parse
from torchledger.ops.pattern.transform import REDUCTIONS, Step, Transformed, transform
from torchledger.ops.pattern.viewing import Viewed, copied, flattest, view, why_no_view

__all__ = [
    "REDUCTIONS",
    "Contraction",
    "Einsum",
    "Equation",
    "Layout",
    "Operand",
    "Path",
    "Pattern",
    "PatternError",
    "Roofed",
    "Step",
    "Transformed",
    "Viewed",
    "all_at_once",
    "best",
    "copied",
    "einsum",
    "flattest",
    "left_to_right",
    "names_in",
    "operand_name",
    "operand_of",
    "parse",
    "parse_equation",
    "read_shape",
    "read_sizes",
    "roofed",
    "transform",
    "view",
    "why_no_view",
    "with_fewer_copies",
]
