"""Tests of `Segments`: stretches of a recording by their labels."""

from torchledger.tracer.folding.segments import OUTSIDE, Label, Segments


def test_a_stretch_goes_on_to_the_next():
    segments = Segments()
    segments.open(OUTSIDE, 3, 1)  # no other: it goes on
    segments.open(Label("forward", 0, 0, 1), 5, 2)
    segments.open(OUTSIDE, 9, 4)
    assert [segments.at(event) for event in (0, 4, 5, 8, 9, 20)] == [0, 0, 1, 1, 2, 2]
    assert segments.label == OUTSIDE


def test_a_node_is_differentiated_where_it_was_made():
    segments = Segments()
    forward = Label("forward", 0, 0, 1)
    segments.nodes_from(10, forward)
    segments.nodes_from(20, OUTSIDE)
    assert segments.of_node(9) == OUTSIDE
    assert segments.of_node(10) == segments.of_node(19) == Label("backward", 0, 0, 1)
    assert segments.of_node(20) == OUTSIDE
