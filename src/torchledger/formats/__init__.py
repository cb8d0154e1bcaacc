"""Number formats: which numbers FP64, FP32, TF32, FP16, BF16 and the two FP8 formats have, and what they do to others.

A format is its bits. `formats.toml` says how many are exponent and mantissa, how infinity and NaN are written, and
where that is defined; range, step and digits are arithmetic on these (`NumberFormat`), never typed in.

`encode` rounds any number to the nearest one of a format, ties to even, on integers only, so that nothing is rounded
twice on the way; `decode` says what a pattern means. Both agree bit for bit with PyTorch, which the tests show for
every pattern of the 8-bit and 16-bit formats and thousands of drawn values. (PyTorch rounds FP64 to FP32 before it
rounds to anything smaller, so it may differ in the last bit from what one rounding of an FP64 value gives.)

*Beyond the largest number* there are two conventions, and E4M3 is where they part, because it has no infinity.
PyTorch's cast to E4M3 saturates to 448 since version 2.12 (and gave NaN before); its cast to E5M2 becomes infinity.
CUDA's conversions and the OCP standard's saturating mode cut both. `encode` does what PyTorch does unless asked for
`overflow="saturate"` or `"nonfinite"`.

*TF32* is no storage format: a tensor core reads FP32 from memory and drops 13 mantissa bits. Its patterns here have 19
bits and are rounded to nearest even; its elements take 4 bytes.

    format.py      NumberFormat: bits and what follows from them
    catalog.py     the known formats, by any of their names
    encode.py      number <-> pattern
    explain.py     rows for `torchledger format`
    storage.py     bytes of tensors
"""

from torchledger.formats.catalog import get, known
from torchledger.formats.encode import Encoded, Kind, Overflow, bit_pattern, decode, encode, kind_of
from torchledger.formats.explain import ValueRow, describe, explain_value, read_number
from torchledger.formats.format import FormatError, NumberFormat
from torchledger.formats.storage import tensor_bytes

__all__ = [
    "Encoded",
    "FormatError",
    "Kind",
    "NumberFormat",
    "Overflow",
    "ValueRow",
    "bit_pattern",
    "decode",
    "describe",
    "encode",
    "explain_value",
    "get",
    "kind_of",
    "known",
    "read_number",
    "tensor_bytes",
]
