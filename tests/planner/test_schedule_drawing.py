from torchledger.planner.schedule_cost import ChunkCost
from torchledger.planner.schedule_drawing import drawing
from torchledger.planner.simulation import simulate


def test_zero_bubble_of_three_stages():
    """Each piece of one second is a column, a bubble is a dot, sends are not drawn."""
    assert drawing(simulate("zero-bubble", ((ChunkCost(1, 1, 1),),) * 3, 3, 1e-9)) == (
        "0  F0  F1  F2  .   .   B0  W0  B1  W1  B2  W2",
        "1  .   F0  F1  .   B0  F2  B1  W0  B2  W1  W2",
        "2  .   .   F0  B0  F1  B1  F2  B2  W0  W1  W2",
    )


def test_long_pieces_are_filled_and_chunks_primed():
    """A backward pass of two columns is filled with dashes; the second chunk has a prime."""
    rows = drawing(simulate("interleaved", ((ChunkCost(1, 1, 1),) * 2,) * 2, 2))
    assert rows[0].startswith("0  F0  F1  F0' F1' .   .   B0'---- .   B1'----")


def test_columns_line_up_whatever_the_numbers():
    """With 12 micro-batches labels are longer and all columns as wide as the longest."""
    rows = drawing(simulate("1f1b", ((ChunkCost(1, 1, 0),),) * 2, 12))
    assert rows[1].index("F11") == rows[0].index("B10")
