import pytest
import torch

from torchledger import formats
from torchledger.formats import FormatError


@pytest.mark.parametrize(
    ("shape", "name", "size"),
    [
        ((49152, 12288), "fp32", 2304 * 2**20),
        ((49152, 12288), "bf16", 1152 * 2**20),
        ((3, 5), "tf32", 3 * 5 * 4),
        ((7,), "e4m3", 7),
        ((), "fp64", 8),
        ((0, 5), "fp16", 0),
    ],
)
def test_tensor_bytes(shape, name: str, size: int):
    """Elements times bytes per element."""
    assert formats.tensor_bytes(shape, name) == size


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_bytes_are_pytorchs(dtype):
    """A tensor of that dtype takes as many bytes; its own name is understood."""
    assert formats.tensor_bytes((4, 6), str(dtype)) == torch.empty(4, 6, dtype=dtype).nbytes


@pytest.mark.parametrize("shape", [(-1, 2), (1.5,), (True,), ("3",)])
def test_what_is_no_shape(shape):
    """Negative and fractional sizes are refused."""
    with pytest.raises(FormatError, match="whole sizes"):
        formats.tensor_bytes(shape, "fp32")


@pytest.mark.parametrize(
    ("shape", "name", "size"),
    [
        ((49152, 12288), "fp4", 49152 * 12288 // 2),
        ((49152, 12288), "e2m3", 49152 * 12288 * 6 // 8),
        ((49152, 12288), "mxfp8", 49152 * 12288 * 33 // 32),
        ((49152, 12288), "mxfp6_e3m2", 49152 * 12288 * (6 * 32 + 8) // (32 * 8)),
        ((49152, 12288), "mxfp4", 49152 * 12288 * (4 * 32 + 8) // (32 * 8)),
        ((49152, 12288), "mxint8", 49152 * 12288 * 33 // 32),
        ((49152, 12288), "nvfp4", 49152 * 12288 * (4 * 16 + 8) // (16 * 8) + 4),  # and one FP32 for the tensor
        ((3, 5), "fp4", 3 * 3),  # each row of five is 20 bits, in three bytes
        ((3, 5), "mxfp4", 3 * (3 + 1)),  # and has a scale, though its block is not full
        ((2, 33), "mxfp8", 2 * (33 + 2)),
        ((2, 17), "nvfp4", 2 * (9 + 2) + 4),
        ((), "mxfp8", 2),
        ((0, 64), "nvfp4", 0),
        ((64, 0), "mxfp4", 0),
    ],
)
def test_scales_and_packing_are_counted(shape, name: str, size: int):
    """Rows are packed into whole bytes; each block of a row has its scale, full or not."""
    assert formats.tensor_bytes(shape, name) == size
    elements, scales = formats.tensor_parts(shape, name)
    assert elements + scales == size


def test_packed_bytes_are_pytorchs():
    """PyTorch packs two FP4 numbers in a byte: 6 rows of 32 are 96 bytes."""
    assert formats.tensor_bytes((6, 32), "fp4") == torch.empty(6, 16, dtype=torch.float4_e2m1fn_x2).nbytes == 96
