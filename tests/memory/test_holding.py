from torchledger.memory import Block
from torchledger.memory.holding import by_size, by_source

BLOCKS = [
    Block(4, "inputs", op="mm", source="a.py:1"),
    Block(6, "inputs", op="add", source="a.py:1"),
    Block(6, "inputs", source="b.py:2"),
]


def test_blocks_are_summed_by_their_source_with_their_operations():
    first, second = by_source(BLOCKS)
    assert (first.what, first.op, first.num_blocks, first.num_bytes, first.largest_bytes) == (
        "a.py:1",
        "add, mm",
        2,
        10,
        6,
    )
    assert (second.what, second.op, second.num_bytes) == ("b.py:2", "", 6)


def test_blocks_are_summed_by_their_size():
    assert [(each.what, each.num_blocks, each.num_bytes) for each in by_size(BLOCKS)] == [("6", 2, 12), ("4", 1, 4)]
