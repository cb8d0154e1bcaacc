"""Equal bits have equal hashes; a change of a bit, an order or a length does not pass."""

import pytest
import torch

from torchledger.auditor.determinism_hash import combined, hash_of, tensor_hash

FORMATS = [
    torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.int8,
    torch.uint8, torch.bool, torch.complex64,
]  # fmt: skip


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("size", [0, 1, 3, 1000, 8192 * 2 + 5])
def test_every_bit_of_every_format_counts(dtype, size):
    """A copy has the same hash; with one bit turned, anywhere, it has another."""
    generator = torch.Generator().manual_seed(size)
    tensor = torch.randint(0, 2, (size,), generator=generator).to(dtype)
    assert tensor_hash(tensor.clone()) == tensor_hash(tensor)
    for place in {0, size // 2, size - 1} if size else ():
        other = tensor.clone()
        (torch.view_as_real(other) if dtype.is_complex else other).view(torch.uint8).view(-1)[place] ^= 1
        assert tensor_hash(other) != tensor_hash(tensor)


def test_order_signs_of_zero_and_trailing_zeros_count():
    """Reversed rows, -0.0 in two places at once and one more zero are other tensors."""
    tensor = torch.randn(50_000, generator=torch.Generator().manual_seed(0))
    zeros, signed = torch.zeros(64), torch.zeros(64)
    signed[[1, 3]] = -0.0
    hashes = [tensor_hash(each) for each in (tensor, tensor.flip(0), zeros, signed, torch.zeros(65), torch.zeros(0))]
    assert len(set(hashes)) == len(hashes)


def test_layout_in_memory_does_not_count():
    """A transposed view has the hash of its copy, also where it begins between two words."""
    tensor = torch.randn(31, 7, dtype=torch.float32).to(torch.bfloat16)
    assert tensor_hash(tensor.t()) == tensor_hash(tensor.t().contiguous())
    assert tensor_hash(tensor.view(-1)[1:]) == tensor_hash(tensor.view(-1)[1:].clone())


def test_the_hash_is_the_sum_that_it_says_it_is():
    """Three words: Σ kᵢ·wᵢ + bytes modulo 2**64, with odd multipliers."""
    from torchledger.auditor.determinism_hash import _multipliers

    words = torch.tensor([5, -7, 2**31 - 1], dtype=torch.int32)
    k = _multipliers(4, 3, torch.device("cpu")).tolist()
    assert all(each % 2 for each in k)
    assert tensor_hash(words) == (5 * k[0] - 7 * k[1] + (2**31 - 1) * k[2] + 12) % 2**64


def test_what_has_no_data_is_unknown():
    """A meta tensor has no hash, and so none together with others; a sparse one has that of its parts."""
    meta = tensor_hash(torch.zeros(2, device="meta"))
    assert meta is None
    assert combined([1, meta]) is None
    assert combined([1, 2]) != combined([2, 1])
    sparse = torch.eye(3).to_sparse()
    assert tensor_hash(sparse) == tensor_hash(sparse.clone()) != tensor_hash((2 * torch.eye(3)).to_sparse())


def test_a_batch_of_any_shape_has_one():
    """Names, places, shapes and values of a batch are all in it."""
    tensor = torch.arange(6)
    texts = {
        hash_of(each)
        for each in (tensor, tensor.view(2, 3), (tensor, 1), (tensor, 2), {"x": tensor}, {"y": tensor}, [tensor + 1, 1])
    }
    assert len(texts) == 7
    assert hash_of((tensor, None, "a")) == hash_of([tensor.clone(), None, "a"])
    assert hash_of(tensor.numpy()) == hash_of(tensor)
