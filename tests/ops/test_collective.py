"""Collectives by the ring: what a rank sends, and what all ranks together send."""

from hypothesis import given
from hypothesis import strategies as st

from torchledger import ops

groups, chunks = st.integers(1, 64), st.integers(1, 10**6)


@given(groups, chunks)
def test_gathering_and_reducing_send_all_but_one_of_n_chunks(n, chunk):
    """A ring of n ranks takes n - 1 turns, and each rank sends one chunk a turn: (n - 1)/n of the whole."""
    for rule in (ops.all_gather, ops.reduce_scatter):
        (piece,) = rule(n, chunk, element_bytes=2)
        assert piece.work.bytes_sent == (n - 1) * 2 * chunk
        assert piece.work.bytes_sent * n == (n - 1) * dict(piece.shape)["bytes"]


@given(groups, chunks)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(n, chunk):
    """All-reduce sends what its two halves send, and adds what the first of them adds."""
    whole = ops.all_reduce(n, chunk)[0].work
    halves = ops.reduce_scatter(n, chunk)[0].work + ops.all_gather(n, chunk)[0].work
    assert whole.bytes_sent == halves.bytes_sent == 2 * (n - 1) * 4 * chunk
    assert whole.flops_full == halves.flops_full == (n - 1) * chunk


@given(groups, chunks)
def test_a_broadcast_reaches_every_rank_but_the_root_once(n, size):
    """Over all ranks n - 1 copies travel: the last of the ring passes nothing on."""
    sent = sum(ops.broadcast(n, size)[0].work.bytes_sent for _ in range(n - 1))
    assert sent + ops.receive(size)[0].work.bytes_sent == (n - 1) * 4 * size


def test_uneven_parts_keep_what_the_rank_keeps():
    """An all-to-all sends everything but the rank's own part."""
    work = ops.all_to_all(4, 100, 60, 70, element_bytes=2)[0].work
    assert (work.bytes_sent, work.bytes_read, work.bytes_written) == (2 * (100 - 70), 2 * 100, 2 * 60)


@given(groups, chunks)
def test_a_root_scatters_what_the_others_receive(n, chunk):
    """The root sends n - 1 chunks, and n - 1 ranks receive one each."""
    received = (n - 1) * ops.receive(chunk)[0].work.bytes_written
    assert ops.scatter(n, chunk)[0].work.bytes_sent == received


def test_a_reduction_to_one_rank_adds_on_the_way():
    """Every rank but the root adds its own to what arrives and passes it on; a pair sends as much as it receives."""
    work = ops.reduce(4, 100)[0].work
    assert (work.bytes_sent, work.flops_full) == (4 * 100, 100)
    assert ops.send(100)[0].work.bytes_sent == ops.receive(100)[0].work.bytes_written == 4 * 100
