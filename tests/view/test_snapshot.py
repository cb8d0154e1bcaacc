from torchledger.memory import AllocatorSettings, Block, DeviceRecord, Replayed, Timeline, reserve
from torchledger.memory.replay import Mismatch
from torchledger.view.screen import Lines, Table
from torchledger.view.snapshot import agreement, headline, held_at_peak, snapshot_screen, what_if_table

MIB = 1 << 20
TIMELINE = Timeline(
    (
        Block(3 * MIB, "temporaries", source="a.py:1", allocated=0),
        Block(5 * MIB, "temporaries", source="b.py:2", op="mm", allocated=1, freed=2),
    ),
    num_events=3,
)


def replayed(*mismatches):
    allocated = (0, 3 * MIB, 8 * MIB, 3 * MIB, 3 * MIB)
    reserved = (0, 20 * MIB, 20 * MIB, 20 * MIB, 20 * MIB)
    split = (0, 17 * MIB, 12 * MIB, 17 * MIB, 17 * MIB)
    return Replayed(2, 2, 1, 1, mismatches, 0, allocated, allocated, reserved, split, TIMELINE, (0, 1, 2, 3, 3))


def test_the_peak_is_told_with_what_was_held_there():
    seen = replayed()
    assert headline("s.pickle", seen) == "s.pickle: 8 MiB allocated at the peak, 20 MiB reserved"
    assert [block.source for block in held_at_peak(seen)] == ["b.py:2", "a.py:1"]
    screen = snapshot_screen("s.pickle", DeviceRecord(0, AllocatorSettings(), (), ()), seen, None, ("assumed so",))
    tables = [block for block in screen if isinstance(block, Table)]
    assert [row.cells for row in tables[0].rows] == [("b.py:2", "mm", "1", "5 MiB"), ("a.py:1", "", "1", "3 MiB")]
    assert [row.cells[0] for row in tables[1].rows] == ["5,242,880", "3,145,728"]
    assert screen[-1] == Lines(("assumed so",), "assumes", "note")


def test_where_the_model_parts_from_the_record_is_told_once():
    lines = agreement(replayed(Mismatch(7, "address of a block", 512, 1024), Mismatch(8, "more", 0, 1)))
    assert lines[1].startswith("they part at event 7: address of a block: recorded 512, modelled 1,024")
    assert len(lines) == 2
    assert len(agreement(replayed())) == 1


def test_other_options_stand_beside_the_record():
    table = what_if_table(replayed(), reserve(TIMELINE, AllocatorSettings(expandable_segments=True)))
    assert [row.cells for row in table.rows][:2] == [
        ("allocated, most", "8 MiB", "8 MiB"),
        ("reserved, most", "20 MiB", "20 MiB"),
    ]
