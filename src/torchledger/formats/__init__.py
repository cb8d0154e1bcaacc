"""Number formats: which numbers FP64, FP32, TF32, FP16, BF16, FP8, FP6, FP4 and INT8 have, and what they do to others.

A format is its bits. `formats.toml` says how many are exponent and mantissa, how infinity and NaN are written, and
where that is defined; range, step and digits are arithmetic on these (`NumberFormat`, `IntegerFormat`), never typed in.
A block format (MXFP8, MXFP6, MXFP4, MXINT8, NVFP4) has narrow elements that share a scale (`BlockFormat`).

`encode` rounds any number to one of a format, to nearest with ties to even unless asked otherwise, on integers only, so
that nothing is rounded twice on the way; `decode` says what a pattern means. Both agree bit for bit with PyTorch and
ml_dtypes, which the tests show for every pattern of 16 bits and fewer and a million drawn values. (PyTorch rounds FP64
to FP32 before it rounds to anything smaller, so it may differ in the last bit from one rounding of an FP64 value.)

*Beyond the largest number* there are two conventions, and E4M3 is where they part, because it has no infinity.
PyTorch's cast to E4M3 saturates to 448 since version 2.12 (and gave NaN before); its cast to E5M2 becomes infinity.
CUDA's conversions and the OCP standard's saturating mode cut both. `encode` does what PyTorch does unless asked for
`overflow="saturate"` or `"nonfinite"`.

*TF32* is no storage format: a tensor core reads FP32 from memory and drops 13 mantissa bits. Its patterns here have 19
bits and are rounded to nearest even; its elements take 4 bytes.

    format.py        NumberFormat: bits and what follows from them
    integer.py       IntegerFormat: two's complement with a fixed step
    block.py         BlockFormat: elements with a shared scale, bytes with their share of it
    catalog.py       the known formats, by any of their names
    rounding.py      the rounding modes
    encode.py        number -> pattern
    decode.py        pattern -> number
    block_encode.py  numbers <-> blocks with scales
    ladder.py        the neighbours of a number
    accumulate.py    sums that are rounded after every addition, and their bounds
    explain.py       what becomes of a number in each format, and why
    describe.py      the properties of a format as a row
    storage.py       bytes of tensors
    strides.py       what views and copies are: arithmetic of strides
"""

from torchledger.formats.accumulate import Accumulation, Order, accumulate, accumulate_equal
from torchledger.formats.block import BlockFormat
from torchledger.formats.block_encode import EncodedBlock, EncodedBlocks, ScaleRule, decode_block, encode_blocks
from torchledger.formats.catalog import Format, ScalarFormat, block, blocks, every, find, get, known, scalar
from torchledger.formats.decode import Kind, bit_pattern, decode, kind_of, read_pattern
from torchledger.formats.describe import describe
from torchledger.formats.encode import Encoded, Overflow, encode, stochastic_odds
from torchledger.formats.explain import ValueRow, explain_value, read_number
from torchledger.formats.format import FormatError, NumberFormat
from torchledger.formats.integer import IntegerFormat
from torchledger.formats.ladder import Rung, ladder
from torchledger.formats.rounding import ROUNDINGS, Rounding
from torchledger.formats.storage import tensor_bytes, tensor_parts

__all__ = [
    "ROUNDINGS",
    "Accumulation",
    "BlockFormat",
    "Encoded",
    "EncodedBlock",
    "EncodedBlocks",
    "Format",
    "FormatError",
    "IntegerFormat",
    "Kind",
    "NumberFormat",
    "Order",
    "Overflow",
    "Rounding",
    "Rung",
    "ScalarFormat",
    "ScaleRule",
    "ValueRow",
    "accumulate",
    "accumulate_equal",
    "bit_pattern",
    "block",
    "blocks",
    "decode",
    "decode_block",
    "describe",
    "encode",
    "encode_blocks",
    "every",
    "explain_value",
    "find",
    "get",
    "kind_of",
    "known",
    "ladder",
    "read_number",
    "read_pattern",
    "scalar",
    "stochastic_odds",
    "tensor_bytes",
    "tensor_parts",
]
