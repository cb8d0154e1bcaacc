import warnings

import einops
import torch

from torchledger.machine import get
from torchledger.ops.pattern import einsum, roofed, transform, view
from torchledger.view.explain import einsum_screen, transformed_screen, viewed_screen
from torchledger.view.explain_record import einops_code, least_bytes
from torchledger.view.terminal import draw

SIZES = {"b": 2, "s": 3, "h": 4, "d": 5}


def shown(screen):
    return draw(screen)


def test_the_headline_says_view_or_copy():
    """A view moves nothing; 120 elements of 4 bytes are 480 B, read and written."""
    apart = transform("b s (h d) -> b h s d", "rearrange", SIZES)
    assert shown(transformed_screen(apart, None, ())).startswith("rearrange is a view: no byte moves\n")
    together = transform("b h s d -> b s (h d)", "rearrange", SIZES)
    text = shown(transformed_screen(together, None, ("assumed",)))
    assert text.startswith("rearrange copies: 480 B read and 480 B written\n")
    assert "why it copies" in text
    assert "assumed" in text


def test_a_reduction_tells_flops_and_whether_it_copies():
    """Sum over s: 2·4·5·2 additions without a copy; over (b h) joined after a turn there is one."""
    plain = transform("b s h d -> b h d", "sum", SIZES)
    assert shown(transformed_screen(plain, None, ())).startswith("sum: 80 FLOP, 640 B moved, without a copy\n")
    strided = transform("(s h) d -> h s", "sum", {"s": 3, "h": 4, "d": 5}, shape=(12, 5), stride=(1, 24))
    assert "without a copy" in shown(transformed_screen(strided, None, ()))


def test_a_repetition_of_one_row_shows_what_is_stored():
    """Four times the same 3 elements."""
    text = shown(transformed_screen(transform("s -> b s", "repeat", {"s": 3, "b": 4}), None, ()))
    assert "(4, 3) stride (0, 1): 48 B, not contiguous, 3 elements of storage" in text


def test_an_einsum_of_two_shows_its_matrix_product_and_its_bound():
    told = einsum("b s h d, b t h d -> b h s t", {**SIZES, "t": 6}, element_bytes=2)
    roofs = roofed(told.pieces, get("h100"), "bf16")
    text = shown(einsum_screen(told, roofs, ()))
    assert "8 times [3, 5] @ [5, 6], 2·8·3·6·5 FLOPs" in text
    assert "memory-bound (ridge at 295 FLOP a byte)" in text.splitlines()[0]
    assert "operand a: size 8 of (8, 3, 5) joins b and h" in text


def test_an_einsum_of_three_shows_pairs_and_orders():
    text = shown(einsum_screen(einsum("ij,jk,kl->il", {"i": 2, "j": 3, "k": 4, "l": 5}), None, ()))
    for part in ("pair by pair", "one loop over all indices", "left to right", "best"):
        assert part in text


def test_a_diagonal_is_a_view_and_has_no_intensity():
    text = shown(einsum_screen(einsum("ii->i", {"i": 4}), None, ()))
    assert text.startswith("a view: no byte moves\n")
    assert "nothing is moved" in text


def test_what_cublas_copies_is_apart():
    """Every second column: nothing that torch copies, 12 elements that its CUDA kernel's caller does."""
    told = einsum("ij,jk->ik", {"i": 3, "j": 4, "k": 5}, strides={0: (8, 2)})
    text = shown(einsum_screen(told, None, ()))
    assert "none of it in copies" in text
    assert "operand a: neither of its last strides suits BLAS; 48 B read and 48 B written more" in text


def test_a_view_that_works_and_one_that_fails():
    good = shown(viewed_screen(view((2, 3, 4), (6, 4)), None, ()))
    assert good.startswith("(6, 4) is a view: no byte moves\n")
    bad = shown(viewed_screen(view((2, 3), (6,), stride=(1, 2)), None, ()))
    assert bad.startswith("view(6) fails")
    assert "x.reshape(6), a copy: 24 B read and 24 B written" in bad


def test_a_view_on_a_chip_takes_no_time():
    told = transform("b s d -> b d s", "rearrange", {"b": 2, "s": 3, "d": 4})
    text = shown(transformed_screen(told, roofed(told.pieces, get("h100"), "fp32"), ()))
    assert "takes no time" in text


def test_letters_that_copy_less_are_shown():
    text = shown(einsum_screen(einsum("bshd,hdo->bso", {**SIZES, "o": 6}), None, ()))
    assert "other letters  abcd,cde->abe copies nothing: torch sums in the order of the alphabet" in text


def test_the_least_bytes_of_a_diagonal_are_those_on_it():
    """A trace of (4, 4) reads 4 of 16 elements and writes 1, at the least and as run; a view moves nothing at all."""
    trace = einsum("ii->", {"i": 4})
    assert least_bytes(trace) == 4 * (4 + 1) == sum(piece.work.bytes_moved for piece in trace.pieces)
    assert least_bytes(einsum("ii->i", {"i": 4})) == 0
    assert "at the least" not in shown(einsum_screen(einsum("ij->ji", {"i": 4, "j": 3}), None, ()))
    assert least_bytes(einsum("ij,jk->ik", {"i": 2, "j": 3, "k": 4})) == 4 * (2 * 3 + 3 * 4 + 2 * 4)


def test_axes_called_like_words_of_python_can_be_pasted():
    """`in` and `if` cannot be keywords of a call; in a dictionary they can."""
    told = transform("in b if -> b in if", "rearrange", {"in": 2, "b": 3, "if": 4})
    x = torch.arange(24).reshape(2, 3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # einops advises against such names
        made = eval(einops_code(told), {"x": x, "rearrange": einops.rearrange})  # noqa: S307 - our own text
    assert torch.equal(made, x.permute(1, 0, 2))
