from torchledger.machine import BadCluster, BadRow, MachineError, NoPeak, UnknownChip, UnknownFact


def test_the_errors_are_one_tree_of_value_errors():
    """A caller may catch the whole room at once, and anybody who catches ValueError catches it."""
    assert issubclass(MachineError, ValueError)
    assert issubclass(NoPeak, UnknownFact)
    for error in (UnknownChip, UnknownFact, BadCluster, BadRow):
        assert issubclass(error, MachineError)


def test_a_bad_file_shows_one_mistake_a_line():
    """The message is the list."""
    assert str(BadRow(["a: b", "c: d"])) == "a: b\nc: d"
