"""Tables of a traced step say what the ledger says."""

from torchledger.ledger import Coverage, Ledger, Line, UnknownOperation, Work
from torchledger.machine import get
from torchledger.view.trace import coverage_lines, purpose_table, roofline_table, what_if_table

LEDGER = Ledger(
    (
        Line("a", "matmul", Work.of_flops(6_000_000, bytes_read=10), "matmul"),
        Line("a", "matmul", Work.of_flops(4_000_000, bytes_read=10), "matmul", "backward", "weight"),
        Line("a", "matmul", Work.of_flops(6_000_000, bytes_read=10), "matmul", "recompute"),
        Line("b", "add", Work.of_flops(1, bytes_read=4_000_000), "pointwise"),
        Line("b", "odd", Work(None, None, None, None), "unknown", "optimizer"),
    )
)


def test_purposes_add_up_under_each_number():
    """Recompute is in what runs and in nothing else; unknown is said, not zero."""
    known = LEDGER.where(lambda line: line.kind != "unknown")
    rows = {row.cells[0]: row.cells[1:] for row in purpose_table(known).rows}
    assert rows["forward"] == ("6 MFLOP",) * 3
    assert rows["recompute"][1] == "6 MFLOP"
    assert rows["total"] == ("10 MFLOP", "16 MFLOP", "10 MFLOP")
    assert "unknown" in {row.cells[0]: row.cells[1:] for row in purpose_table(LEDGER).rows}["total"]


def test_unknown_operations_are_named_with_their_bound():
    lines = coverage_lines(
        Coverage(6, 2, (UnknownOperation("odd", 3, 5_000_000, ("b",)), UnknownOperation("o", 1, None, ("",))))
    )
    assert lines.mark == "warning"
    assert lines.lines[1:] == (
        "no rule for odd, 3 times, at most 5 MFLOP, in `b`",
        "no rule for o, 1 times, no bound known",
    )


def test_the_roofline_tells_what_bounds_the_longest_lines():
    """4 MB at 3.35 TB/s take longer than 6 MFLOP at 66.9 TFLOP/s."""
    table = roofline_table(LEDGER, get("h100"))
    assert table.rows[0].cells[:2] == ("b", "add")
    assert [row.cells[-1] for row in table.rows[:2]] == ["memory", "compute"]
    assert "no time is known for 1 lines" in table.note
    assert table.rows[-1].mark == "total"


def test_what_ifs_are_held_against_the_first():
    """Columns of the device and the host stand only where they say something."""
    row = {
        "name": "as it is",
        "peak_bytes": 4,
        "reserved_bytes": None,
        "kept_bytes": 2,
        "host_bytes": 0,
        "executed_flops": 100,
    }
    table = what_if_table([row, {**row, "name": "full", "executed_flops": 133}])
    assert table.rows[1].cells[-1] == "1.330×"
    assert "reserved" not in table.titles
    cuda = what_if_table(
        [{**row, "reserved_bytes": 8, "host_bytes": 4}, {**row, "reserved_bytes": 8, "executed_flops": None}]
    )
    assert {"reserved", "on the host"} <= set(cuda.titles)
