from torchledger.memory import Block, Timeline
from torchledger.view.memory import live_table, memory_bars


def test_parts_are_shares_of_the_whole():
    """Each part's bar is its share of the sum; empty parts are left out."""
    bars = memory_bars({"parameters": 300, "activations": 100, "inputs": 0})
    assert [(each.label, each.share) for each in bars.bars] == [("parameters", 300 / 400), ("activations", 100 / 400)]
    assert "400 B" in bars.title


def test_the_whole_is_held_against_the_capacity():
    """With a capacity the first bar is the sum over what there is, and may be longer than it."""
    bars = memory_bars({"parameters": 300}, capacity_bytes=200)
    assert (bars.bars[0].label, bars.bars[0].share) == ("all", 300 / 200)


def test_the_largest_tensors_at_the_peak():
    """The table lists the largest first and sums up the rest."""
    blocks = tuple(Block(size, "activations", f"layer.{size}", allocated=i) for i, size in enumerate((10, 30, 20)))
    table = live_table(Timeline(blocks, num_events=3).peak(), limit=2)
    assert [row.cells[0] for row in table.rows] == ["layer.30", "layer.20"]
    assert "1 smaller, 10 B" in table.note
