"""What was counted, and what was not."""

from torchledger.ledger import Coverage, Line, UnknownOperation, Work, unknown_operations

UNKNOWN = Work(None, None, None, None)


def test_operations_without_a_rule_by_name_with_their_bound():
    """Two lines of one operation are one entry; the most frequent comes first."""
    lines = [
        Line("a", "odd", UNKNOWN, "unknown", shape=(("at_most_flops", 10),), times=2),
        Line("b", "odd", UNKNOWN, "unknown", shape=(("at_most_flops", 5),)),
        Line("a", "odder", UNKNOWN, "unknown", times=9),
        Line("a", "matmul", Work.of_flops(3), "matmul"),
    ]
    assert unknown_operations(lines) == (
        UnknownOperation("odder", 9, None, ("a",)),
        UnknownOperation("odd", 3, 25, ("a", "b")),
    )


def test_share_and_bound():
    """Free operations are known; one bound that nobody knows makes the sum unknown."""
    one, other = UnknownOperation("odd", 1, 7, ("",)), UnknownOperation("odder", 1, None, ("",))
    assert Coverage(6, 2, (one, other)).share == 0.8
    assert Coverage(6, 2, (one,)).at_most_flops == 7
    assert Coverage(6, 2, (one, other)).at_most_flops is None
    assert (Coverage(0, 0).share, Coverage(0, 0).at_most_flops, Coverage(1, 1).num_unknown) == (1.0, 0, 0)
