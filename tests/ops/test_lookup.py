"""Lookups move rows; their gradient adds them up."""

from hypothesis import given
from hypothesis import strategies as st

from torchledger import ops
from torchledger.ledger import Convention

sizes = (st.integers(1, 10**5), st.integers(1, 10**5), st.integers(1, 10**4))


@given(*sizes)
def test_an_embedding_copies_a_row_a_token_and_reads_its_index(tokens, vocabulary, hidden):
    work = ops.embedding(tokens, vocabulary, hidden, element_bytes=2)[0].work
    assert work.flops_full == 0
    assert work.bytes_read == 2 * tokens * hidden + 8 * tokens
    assert work.bytes_written == 2 * tokens * hidden


@given(*sizes)
def test_its_gradient_fills_the_whole_table_and_adds_a_row_a_token(tokens, vocabulary, hidden):
    (piece,) = ops.embedding_backward(tokens, vocabulary, hidden)
    assert piece.work.flops_full == tokens * hidden
    assert piece.work.bytes_written == 4 * vocabulary * hidden
    assert piece.gradient_of == "weight"


@given(*sizes)
def test_a_convention_that_counts_the_lookup_reads_a_one_hot_product_off_its_shape(tokens, vocabulary, hidden):
    for rule in (ops.embedding, ops.embedding_backward):
        line = rule(tokens, vocabulary, hidden)[0].line("embedding")
        assert Convention(embedding=True).flops(line) == ops.matmul(1, tokens, hidden, vocabulary)[0].work.flops_full


@given(st.integers(1, 1000), st.integers(1, 300), st.integers(1, 8))
def test_choosing_the_largest_takes_a_pass_of_compares_for_each(rows, columns, chosen):
    work = ops.topk(rows, columns, chosen)[0].work
    assert work.flops_full == sum(rows * columns for _ in range(chosen))
    assert work.bytes_written == rows * chosen * (4 + 8)


def test_sorting_integers_is_no_floating_point():
    work = ops.sort_indices(10)[0].work
    assert (work.flops_full, work.bytes_moved) == (0, 3 * 8 * 10)


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_gathering_moves_rows_and_scattering_adds_them(rows, size):
    assert ops.gather(rows, size)[0].work.bytes_written == 4 * rows * size
    scattered = ops.scatter_add(rows, size)[0].work
    assert (scattered.flops_full, scattered.bytes_read) == (rows * size, 2 * 4 * rows * size + 8 * rows)
