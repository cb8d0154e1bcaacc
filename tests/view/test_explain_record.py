from torchledger.machine import get
from torchledger.ops.pattern import einsum, roofed, transform, view
from torchledger.view.explain_record import (
    bytes_moved,
    doing,
    einops_code,
    einsum_record,
    least_bytes,
    transformed_record,
    viewed_record,
)
from torchledger.view.record import plain

SIZES = {"b": 2, "s": 3, "h": 4, "d": 5}


def test_a_view_moves_nothing_and_has_no_reason():
    record = transformed_record(transform("b s (h d) -> b h s d", "rearrange", SIZES), None)
    assert (record["is_view"], record["moved_bytes"], record["num_copies"], record["roofline"]) == (True, 0, 0, None)
    assert record["contiguous_moved_bytes"] == 2 * 4 * 2 * 3 * 4 * 5  # it would be copied: read and written, 4 bytes
    assert [step["does"] for step in record["steps"]] == ["view", "view"]


def test_a_copy_tells_its_bytes_and_its_reason():
    record = transformed_record(transform("b h s d -> b s (h d)", "rearrange", SIZES), None)
    assert record["moved_bytes"] == record["read_bytes"] + record["written_bytes"] == 2 * 4 * 2 * 3 * 4 * 5
    assert record["steps"][-1]["does"] == "copy"
    assert "joins h and d" in record["steps"][-1]["reason"]


def test_what_einops_is_called_with():
    """Sizes that only a shape told are in it too; axes of `...` and without a name are not."""
    told = transform("b ... 2 -> b ...", "max", {}, shape=(3, 5, 2))
    assert einops_code(told) == 'reduce(x, "b ... 2 -> b ...", "max", b=3)'
    assert doing(told.steps[0]) == "reduction"


def test_an_einsum_is_told_beside_other_orders():
    """Chain of [2, 3] [3, 4] [4, 5]: 2·2·3·4 + 2·2·4·5 FLOPs from the left, three a point in one loop."""
    told = einsum("ij,jk,kl->il", {"i": 2, "j": 3, "k": 4, "l": 5})
    record = einsum_record(told, None)
    assert record["paths"]["left_to_right"]["flops"] == 2 * 2 * 3 * 4 + 2 * 2 * 4 * 5
    assert record["paths"]["all_at_once"]["flops"] == 3 * 2 * 3 * 4 * 5
    assert record["paths"]["best"]["flops"] <= record["paths"]["left_to_right"]["flops"]
    assert record["least_bytes"] == least_bytes(told) == 4 * (2 * 3 + 3 * 4 + 4 * 5 + 2 * 5)
    assert record["copied_bytes"] == told.copied_bytes == 0
    assert plain(record)["contractions"][0]["matmul"] == {"b": 1, "m": 2, "n": 4, "k": 3}


def test_orders_of_too_many_operands_are_unknown_and_not_zero():
    told = einsum(",".join("a" * 11) + "->", {"a": 2})
    assert einsum_record(told, None)["paths"]["best"] is None


def test_a_roofline_has_its_chip_and_seconds():
    told = einsum("ij,jk->ik", {"i": 64, "j": 64, "k": 64}, element_bytes=2)
    roofs = roofed(told.pieces, get("h100"), "bf16")
    record = einsum_record(told, roofs)["roofline"]
    assert (record["bound"], record["least_s"]) == ("memory", roofs.seconds)
    assert [kernel["bound"] for kernel in record["kernels"]] == ["memory"]


def test_a_view_that_fails_tells_what_works():
    """Nothing after it; a reshape reads and writes 6 elements of 4 bytes."""
    record = viewed_record(view((2, 3), (6,), stride=(1, 2)), None)
    assert (record["is_view"], record["after"], record["reshape_moved_bytes"]) == (False, None, 2 * 6 * 4)
    assert record["flattest_view"]["shape"] == (2, 3)


def test_letters_that_copy_less_are_told():
    """In bshd,hdo->bso torch sums d before h and copies both; with letters in the order of memory nothing."""
    record = einsum_record(einsum("bshd,hdo->bso", {**SIZES, "o": 6}), None)
    assert record["copied_bytes"] == 2 * 4 * (2 * 3 * 4 * 5 + 4 * 5 * 6)  # both operands, read and written
    assert record["with_other_letters"] == {"equation": "abcd,cde->abe", "copied_bytes": 0}
    assert einsum_record(einsum("ij,jk->ik", {"i": 2, "j": 3, "k": 4}), None)["with_other_letters"] is None


def test_bytes_of_pieces_are_read_and_written():
    told = transform("b s d -> s (b d)", "rearrange", {"b": 2, "s": 3, "d": 4})
    assert bytes_moved(told.pieces) == 2 * 4 * 2 * 3 * 4
