"""What torch.einsum does, foretold: copies, matrix products, FLOPs, where the result lies, and its values."""

import random

import einops
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from torchledger.ops.pattern import PatternError, einsum, operand_name, with_fewer_copies
from torchledger.tracer import Recorder


def drawn(rng, strided, most_operands=4):
    """An equation, its sizes and tensors; letters of both cases, now and then an index that stands twice."""
    letters = rng.sample("abcdefghXYZ", rng.randint(2, 6))
    sizes = {letter: rng.choice([1, 2, 3, 4] if rng.random() < 0.3 else [2, 3, 4]) for letter in letters}
    operands = []
    for _ in range(rng.choice([1, 2, 2, 2, 3, 4][: most_operands + 2])):
        count = rng.randint(1, min(4, len(letters)))
        twice = rng.random() < 0.1
        operands.append([rng.choice(letters) for _ in range(count)] if twice else rng.sample(letters, count))
    used = sorted({letter for operand in operands for letter in operand})
    output = [letter for letter in used if rng.random() < 0.5]
    rng.shuffle(output)
    text = f"{','.join(' '.join(operand) for operand in operands)}->{' '.join(output)}"
    tensors = [strided([sizes[letter] for letter in operand], rng) for operand in operands]
    return text, {letter: sizes[letter] for letter in used}, tensors


def told_of(text, sizes, tensors, path="left to right"):
    strides = {number: x.stride() for number, x in enumerate(tensors)}
    return einsum(text, sizes, path=path, strides=strides, element_bytes=8)


def copied_elements(told):
    return [step.pieces[0].work.bytes_written // 8 for each in told.contractions for _, step in each.copies]


def run(told, tensors):
    names = {"torch": torch, **dict(zip(told.names, tensors, strict=True))}
    exec("\n".join(told.code), names)  # noqa: S102 - our own code
    return names["y"]


def steps_beyond_one(tensor_or_layout):
    """Strides of what has more than one element: those of a single one say nothing."""
    shape = tuple(tensor_or_layout.shape)
    stride = tensor_or_layout.stride() if callable(tensor_or_layout.stride) else tensor_or_layout.stride
    return shape, [step for size, step in zip(shape, stride, strict=True) if size > 1]


def test_torch_does_what_is_foretold(strided, watched):
    """400 drawn equations of one to four operands: the same copies and products, the result in the same place.

    FLOPs are those of torch's own counter, which counts matrix products and nothing else.
    """
    rng = random.Random(0)
    copies = 0
    for _ in range(400):
        text, sizes, tensors = drawn(rng, strided)
        told = told_of(text, sizes, tensors)
        with watched() as seen, FlopCounterMode(display=False) as counter:
            y = torch.einsum(text, *tensors)
        assert copied_elements(told) == seen.copies, (text, sizes, [x.stride() for x in tensors])
        assert [each.product for each in told.contractions if each.product] == seen.products
        assert told.contraction_flops == counter.get_total_flops()
        assert steps_beyond_one(told.result) == steps_beyond_one(y)
        copies += len(seen.copies)
    assert copies > 60


@pytest.mark.parametrize("path", ["left to right", "best"])
def test_the_code_gives_the_same_values(strided, path):
    """300 drawn equations: whole numbers, so that no order of adding matters."""
    rng = random.Random(1)
    for _ in range(300):
        text, sizes, tensors = drawn(rng, strided)
        told = told_of(text, sizes, tensors, path)
        assert torch.equal(run(told, tensors), torch.einsum(text, *tensors)), text


def test_the_code_copies_what_einsum_copies(strided, watched):
    """With at most two operands the code is what einsum does, copy by copy."""
    rng = random.Random(2)
    for _ in range(300):
        text, sizes, tensors = drawn(rng, strided, most_operands=2)
        told = told_of(text, sizes, tensors)
        with watched() as seen:
            run(told, tensors)
        assert copied_elements(told) == seen.copies, text


def test_the_path_and_the_pieces_count_the_same_flops(strided):
    """What the search compares is what the contractions cost, on the best path and on torch's."""
    rng = random.Random(3)
    for _ in range(300):
        text, sizes, tensors = drawn(rng, strided)
        for path in ("left to right", "best"):
            told = told_of(text, sizes, tensors, path)
            assert told.path.flops == sum(each.flops for each in told.contractions), text


def test_our_own_trace_counts_the_same(strided):
    """40 drawn equations recorded by the tracer: FLOPs of products and of all else, and bytes of the copies."""
    rng = random.Random(4)
    for _ in range(40):
        text, sizes, tensors = drawn(rng, strided)
        told = told_of(text, sizes, tensors)
        with Recorder() as recorder:
            torch.einsum(text, *tensors)
        lines = recorder.trace().ledger.lines
        assert sum(line.total.flops_full for line in lines) == sum(piece.work.flops_full for piece in told.pieces), text
        traced = sum(line.total.bytes_moved for line in lines if line.kind == "copy")
        assert traced == sum(piece.work.bytes_moved for piece in told.pieces if piece.kind == "copy"), text


def test_names_of_einops_are_summed_in_einops_order(strided, watched):
    """In einops letters are given by appearance, and their order decides what is copied."""
    rng = random.Random(5)
    names = ["batch", "head", "key", "width"]
    sizes = {"batch": 2, "head": 3, "key": 4, "width": 5}
    for _ in range(100):
        operands = [rng.sample(names, rng.randint(2, 4)) for _ in range(2)]
        used = sorted({name for operand in operands for name in operand})
        output = [name for name in used if rng.random() < 0.5]
        text = f"{', '.join(' '.join(operand) for operand in operands)} -> {' '.join(output)}"
        tensors = [strided([sizes[name] for name in operand], rng) for operand in operands]
        told = told_of(text, {name: sizes[name] for name in used}, tensors)
        with watched() as seen:
            einops.einsum(*tensors, text)
        assert copied_elements(told) == seen.copies, text


def test_attention_scores():
    """Attention of `b s h d, b t h d`: heads lie between s and d, so both are copied; 2·b·h·s·t·d FLOPs."""
    sizes = {"b": 8, "s": 1024, "t": 1024, "h": 16, "d": 64}
    told = einsum("b s h d, b t h d -> b h s t", sizes, element_bytes=2)
    assert told.contraction_flops == 2 * 8 * 16 * 1024 * 1024 * 64
    (only,) = told.contractions
    assert only.product == (8 * 16, 1024, 1024, 64)
    assert [operand for operand, _ in only.copies] == ["a", "b"]
    one = 2 * 8 * 1024 * 16 * 64  # bytes of an operand
    assert sum(piece.work.bytes_moved for _, step in only.copies for piece in step.pieces) == 2 * (one + one)


def test_more_operands_than_are_searched_go_left_to_right():
    """Eleven vectors: the best path is not looked for."""
    told = einsum(",".join("a" * 11) + "->a", {"a": 2}, path="best")
    assert told.path.pairs[:2] == ((0, 1), (9, 0))


def test_every_size_that_does_not_fit_is_told_at_once():
    with pytest.raises(PatternError) as told:
        einsum("ij,jk->ik", {"i": 2, "q": 3})
    assert str(told.value).splitlines() == [
        "q is no index of 'ij,jk->ik'; it has i, j, k",
        "2 sizes are missing; add j=... k=...",
    ]


def test_operands_have_names_that_the_code_does_not_use():
    """`t1` and `y` are results."""
    names = [operand_name(number) for number in range(30)]
    assert len(set(names)) == 30
    assert not {"t", "y"} & set(names)


def test_torchs_order_is_kept_where_no_other_is_better():
    """Three equal matrices: every order costs the same."""
    assert einsum("ij,jk,kl->il", dict.fromkeys("ijkl", 4), path="best").path.pairs == ((0, 1), (1, 0))


def test_torch_copies_less_with_the_letters_that_are_told(strided, watched):
    """400 drawn equations: where other letters are told, torch copies as little with them, and gives the same."""
    rng = random.Random(6)
    found = 0
    for _ in range(400):
        text, sizes, tensors = drawn(rng, strided)
        told = told_of(text, sizes, tensors)
        better = with_fewer_copies(told)
        if better is None:
            continue
        with watched() as seen:
            y = torch.einsum(better.equation.in_letters, *tensors)
        assert copied_elements(better) == seen.copies
        assert better.copied_bytes < told.copied_bytes
        assert torch.equal(y, torch.einsum(text, *tensors))
        found += 1
    assert found > 10


def test_the_projection_of_attention_is_free_in_the_right_letters(watched):
    """Einsum bshd,hdo->bso copies both operands, since d is summed before h; bshk,hko->bso copies none."""
    x, w = torch.zeros(2, 3, 4, 5), torch.zeros(4, 5, 6)
    with watched() as seen:
        torch.einsum("bshd,hdo->bso", x, w)
    assert seen.copies == [2 * 3 * 4 * 5, 4 * 5 * 6]
    with watched() as seen:
        torch.einsum("bshk,hko->bso", x, w)
    assert seen.copies == []
