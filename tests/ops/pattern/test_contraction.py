import torch

from torchledger.ops.pattern import Layout
from torchledger.ops.pattern.contraction import contract, operand_of, summed_over

SIZES = {"b": 2, "i": 3, "j": 4, "k": 5}


def tensor(code, names, order, stride=None):
    shape = tuple(SIZES[name] for name in names)
    return operand_of(code, names, Layout.contiguous(shape) if stride is None else Layout(shape, stride), order)


def contracted(left, right, output, stride=None):
    order = (*output, *sorted(set(left + right) - set(output)))
    a, b = tensor("a", left, order, stride), tensor("b", right, order)
    return contract(a, b, set(output), order, SIZES, name="y", element_bytes=4)


def test_batch_rows_columns_and_sum():
    """bij,bjk->bik is 2 products [3, 4] @ [4, 5] of contiguous views: 2·2·3·5·4 FLOPs, nothing copied."""
    found = contracted("bij", "bjk", "bik")
    assert found.product == (2, 3, 5, 4)
    assert (found.flops, found.copies, found.kernel_copies) == (2 * 2 * 3 * 5 * 4, (), ())
    assert found.code == "torch.bmm(a, b)"


def test_operands_change_places_where_the_result_asks_for_it():
    """Rows of ji,kj->ki are the right operand's k: torch puts it on the left, and need not turn the product."""
    found = contracted("ji", "kj", "ki")
    assert (found.left, found.right, found.product) == ("b", "a", (1, 5, 3, 4))
    assert found.result.layout.is_contiguous


def test_without_a_sum_it_is_a_product_by_element():
    """ij,j->ij: 3·4 multiplications; 12 + 4 elements read and 12 written."""
    found = contracted("ij", "j", "ij")
    (piece,) = found.compute
    assert (found.product, found.flops) == (None, 3 * 4)
    assert (piece.work.bytes_read, piece.work.bytes_written) == (4 * (12 + 4), 4 * 12)


def test_what_one_operand_has_alone_is_summed_first():
    """ij,jk->i: 4·(5 - 1) additions for k, then 2·3·4."""
    found = contracted("ij", "jk", "i")
    assert [piece.op for piece in found.compute] == ["sum", "matmul"]
    assert found.flops == 4 * (5 - 1) + 2 * 3 * 4


def test_a_matrix_without_a_step_of_one_is_copied_for_blas():
    """Every second column of [3, 8]: a view for torch, which cuBLAS cannot walk; 12 elements read, 12 written."""
    found = contracted("ij", "jk", "ik", stride=(8, 2))
    assert found.copies == ()
    ((operand, piece),) = found.kernel_copies
    assert (operand, piece.work.bytes_read, piece.work.bytes_written) == ("a", 4 * 12, 4 * 12)


def test_a_transposed_matrix_is_not():
    """BLAS walks columns as well as rows."""
    assert contracted("ij", "jk", "ik", stride=(1, 3)).kernel_copies == ()


def test_an_index_that_stands_twice_is_a_diagonal():
    """Both steps together, as torch's diagonal has it; the code is torch's."""
    operand = operand_of("a", ("i", "i"), Layout.contiguous((3, 3)), ("i",))
    a = torch.arange(9.0).view(3, 3)
    assert torch.equal(eval(operand.code), a.diagonal())  # noqa: S307 - our own code
    assert operand.layout.stride == a.diagonal().stride() == (4,)


def test_a_sum_is_contiguous_in_torchs_order():
    """Over i of [i, j, k] with k before j in the result: [k, j], each a sum of 3."""
    summed, (piece,) = summed_over(tensor("a", ("i", "j", "k"), "kji"), ("i",), "kji", 4)
    a = torch.arange(60.0).view(3, 4, 5)
    assert torch.equal(eval(summed.code), torch.einsum("ijk->kj", a))  # noqa: S307 - our own code
    assert (summed.names, summed.layout) == (("k", "j"), Layout.contiguous((5, 4)))
    assert piece.work.flops_full == 4 * 5 * (3 - 1)
