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
