import pytest

from torchledger.planner.collective import collective_line


@pytest.mark.parametrize(
    ("op", "sent"),
    [
        ("all_reduce", 2 * 3 / 4),
        ("all_gather", 3 / 4),
        ("reduce_scatter", 3 / 4),
        ("all_to_all", 3 / 4),
        ("broadcast", 1),
        ("send", 1),
    ],
)
def test_a_line_says_what_one_rank_sends(op, sent):
    """Of a tensor of 800 bytes over 4 ranks, by the ring algorithms."""
    line = collective_line("layers.*.mlp", op, 800, 4)
    assert line.work.bytes_sent == sent * 800
    assert (line.module, line.op, line.kind, line.phase) == ("layers.*.mlp", op, "collective", "communication")


def test_an_all_gather_reads_a_part_and_writes_the_whole():
    """And a reduce-scatter the other way round, an add for every element that arrives."""
    gather, scatter = (collective_line("", op, 800, 4, element_bytes=2).work for op in ("all_gather", "reduce_scatter"))
    assert (gather.bytes_read, gather.bytes_written) == (200, 800)
    assert (scatter.bytes_read, scatter.bytes_written, scatter.flops_full) == (800, 200, 3 * 100)


def test_a_tensor_that_cannot_be_shared_equally_is_padded():
    """10 elements over 4 ranks are 3 each."""
    assert collective_line("", "all_gather", 20, 4, element_bytes=2).work.bytes_written == 4 * 3 * 2


def test_a_line_runs_as_often_as_it_is_told():
    """With the format of its elements."""
    line = collective_line("", "all_reduce", 800, 4, element_bytes=4, number_format="fp32", times=3)
    assert (line.times, line.number_format) == (3, "fp32")
    assert line.total.bytes_sent == 3 * 2 * 3 / 4 * 800
