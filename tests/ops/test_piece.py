"""`Piece`: a part of an operation's cost and how it becomes a line."""

from torchledger import ops
from torchledger.ledger import Work
from torchledger.ops import Piece, moved


def test_a_piece_becomes_a_line_at_its_place():
    piece = Piece("matmul", "matmul", Work.of_flops(12), (("m", 2),), "weight")
    line = piece.line("head", phase="backward", number_format="bf16", times=3, origin="trace", source="a.py:1")
    assert line.account == ("head", "backward", "weight", "matmul", "bf16")
    assert (line.op, line.shape, line.times, line.origin, line.source) == ("matmul", (("m", 2),), 3, "trace", "a.py:1")
    assert line.total == Work.of_flops(36)


def test_the_place_may_say_another_gradient_and_what_is_kept():
    piece = Piece("matmul", "matmul", Work.of_flops(12, bytes_read=5), gradient_of="weight")
    line = piece.line("head", gradient_of="none", bytes_kept=7)
    assert line.gradient_of == "none"
    assert line.work == Work.of_flops(12, bytes_read=5, bytes_kept=7)
    assert piece.line("head").work.bytes_kept == 0


def test_known_bytes_go_to_the_first_piece_and_flops_stay():
    pieces = moved(ops.linear(4, 2, 3, bias=True), bytes_read=100, bytes_written=10)
    assert [(p.work.bytes_read, p.work.bytes_written) for p in pieces] == [(100, 10), (0, 0)]
    assert [p.work.flops_full for p in pieces] == [2 * 4 * 2 * 3, 4 * 3]


def test_nothing_moved_by_nothing():
    assert moved((), bytes_read=1, bytes_written=1) == ()
