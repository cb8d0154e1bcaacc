import pytest
import torch

from torchledger.trainer.session import out_of_memory


def test_a_real_refusal_of_the_allocator_is_recognized():
    """Torch's CPU allocator raises a plain RuntimeError; its words and the bytes are read from it."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50, dtype=torch.uint8)
    error = out_of_memory(caught.value, 4)
    assert (error.step, error.requested_bytes) == (4, 2**50)


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")]
)
def test_pythons_and_cudas_refusals_are_recognized(error):
    """Other allocators' errors are out of memory as well, without a number of bytes where none is told."""
    assert out_of_memory(error, None).requested_bytes is None


def test_another_error_is_not_out_of_memory():
    """A wrong shape is no lack of memory."""
    assert out_of_memory(RuntimeError("shape '[2]' is invalid for input of size 3"), 1) is None
