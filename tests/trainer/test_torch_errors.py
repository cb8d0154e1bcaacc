import pytest
import torch

from torchledger.trainer.errors import OutOfMemory
from torchledger.trainer.torch_errors import out_of_memory, raise_in_our_words


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


def test_what_is_not_in_our_words_is_raised_as_it_is():
    """No error becomes its own cause: whoever walks the causes would walk for ever."""
    error = RuntimeError("connection closed")
    with pytest.raises(RuntimeError) as caught:
        raise_in_our_words(error, 3)
    assert caught.value is error
    assert error.__cause__ is None
    refused = MemoryError()
    with pytest.raises(OutOfMemory) as told:
        raise_in_our_words(refused, 3)
    assert told.value.__cause__ is refused
