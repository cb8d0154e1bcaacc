"""`tensor_hash`: 64 bits of everything that a tensor holds, at the speed of memory, the same on every device."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_WORD = 4
_ROW = 1 << 13  # words of a row, whose multipliers stay in the cache
_ROWS = 3  # made 64 bits wide at once: below the 32,768 numbers from which torch wakes threads and waits for them
_MASK = (1 << 64) - 1


def tensor_hash(tensor: Tensor) -> int | None:
    """A hash of a tensor's bits in row-major order; shape, strides and number format are not in it.

    Multilinear hashing modulo 2**64: Σ kᵢ·wᵢ over the 32-bit words w, the 64-bit multipliers k odd and drawn once; rows
    of words are hashed first, then the halves of the rows' hashes. A difference in one word is always seen, for an odd
    number has an inverse; in several it is missed with a chance of 2**-32 at most (where all differ in the highest bit
    alone), mostly of 2**-63: Lemire & Kaser 2014, "Strongly universal string hashing is fast". Sums of
    integers do not depend on their order, so the hash itself repeats on every device.

    Returns:
        0 to 2**64 - 1; nothing for a tensor without data (meta) or of a layout that is not known here.
    """
    if tensor.is_meta or tensor.is_quantized:
        return None
    if tensor.layout is not torch.strided:
        parts = _parts(tensor)
        return None if parts is None else combined([tensor_hash(part) for part in parts])
    data = _bytes(tensor)
    whole = data.numel() // _WORD * _WORD
    tail = int.from_bytes(bytes(data[whole:].tolist()), "little")
    words = data[:whole].view(torch.int32)
    total = tail + data.numel()
    rows = words.numel() // _ROW
    if rows:
        multipliers = _multipliers(_ROW, 1, words.device)
        pieces = torch.split(words[: rows * _ROW].view(rows, _ROW), _ROWS)
        each = torch.cat([torch.mv(piece.long(), multipliers) for piece in pieces])
        total += _sum(each.view(torch.int32), 2)
    return (total + _sum(words[rows * _ROW :], 3)) & _MASK


def combined(hashes: Sequence[int | None]) -> int | None:
    """One hash of several in order; nothing where one is not known."""
    known = [each for each in hashes if each is not None]
    if len(known) < len(hashes):
        return None
    signed = [each - (1 << 64) if each >> 63 else each for each in known]
    return _sum(torch.tensor(signed, dtype=torch.int64).view(torch.int32), 4) & _MASK


def hash_of(value: Any) -> str:
    """A hash of a batch: tensors, arrays and plain values in mappings and sequences, as 16 hexadecimal digits or more.

    Equal texts mean equal values; a value that is neither is told by its type alone.
    """
    if isinstance(value, Tensor):
        found = tensor_hash(value.detach())
        return f"{value.dtype}{list(value.shape)}:{'unknown' if found is None else f'{found:016x}'}"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}={hash_of(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(hash_of(each) for each in value) + "]"
    if isinstance(value, (str, bytes, bool, int, float, type(None))):
        return repr(value)
    if hasattr(value, "__array__"):
        return hash_of(torch.as_tensor(value))
    return type(value).__name__


def _sum(words: Tensor, salt: int) -> int:
    """Σ kᵢ·wᵢ of any number of 32-bit words, modulo 2**64."""
    size = words.numel()
    if not size:
        return 0
    room = 1 << (size - 1).bit_length()
    return int(torch.dot(words.long(), _multipliers(room, salt, words.device)[:size]).item())


@functools.cache
def _multipliers(size: int, salt: int, device: torch.device) -> Tensor:
    """Odd numbers, the same on every machine (Mersenne twister): the first `size` of a list that has no end."""
    generator = torch.Generator().manual_seed(0x7C15 + salt)
    drawn = torch.randint(-(2**63), 2**63 - 1, (size,), generator=generator, dtype=torch.int64)
    return drawn.bitwise_or_(1).to(device)


def _bytes(tensor: Tensor) -> Tensor:
    """Its bytes in row-major order; no copy where it is contiguous and begins at a whole word."""
    plain = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    flat = plain.resolve_neg().detach().contiguous().view(-1).view(torch.uint8)
    return flat.clone() if flat.storage_offset() % _WORD else flat


def _parts(tensor: Tensor) -> tuple[Tensor, ...] | None:
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()  # noqa: SLF001  # the public ones refuse what is not coalesced
    if tensor.layout in {torch.sparse_csr, torch.sparse_bsr}:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return None
