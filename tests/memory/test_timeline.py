from hypothesis import given
from hypothesis import strategies as st

from torchledger.memory import Block, Timeline


@st.composite
def timelines(draw):
    """Random allocations and frees: each event allocates a new block or frees a live one."""
    blocks, live, position = [], [], 0
    for _ in range(draw(st.integers(0, 40))):
        if live and draw(st.booleans()):
            number = live.pop(draw(st.integers(0, len(live) - 1)))
            blocks[number]["freed"] = position
        else:
            live.append(len(blocks))
            part = draw(st.sampled_from(["parameters", "activations", "temporaries"]))
            blocks.append({"num_bytes": draw(st.integers(0, 1000)), "part": part, "allocated": position})
        position += 1
    return Timeline(tuple(Block(**block) for block in blocks), position)


def replayed(timeline):
    """Live bytes after each event, the slow and obvious way."""
    live, curve = 0, [0]
    for event in timeline:
        live += event.delta_bytes
        curve.append(live)
    return curve


@given(timelines())
def test_the_curve_is_the_running_sum_of_the_events(timeline):
    assert timeline.curve() == replayed(timeline)


@given(timelines())
def test_the_peak_is_the_top_of_the_curve_and_its_parts_sum_to_it(timeline):
    peak = timeline.peak()
    assert peak.peak_bytes == max(replayed(timeline))
    assert sum(peak.by_part().values()) == peak.peak_bytes
    assert sum(block.num_bytes for block in peak.blocks) == peak.peak_bytes


@given(timelines(), st.integers(0, 40))
def test_live_blocks_at_a_position_sum_to_the_curve_there(timeline, position):
    position = min(position, timeline.num_events)
    assert timeline.live_bytes_at(position) == timeline.curve()[position]


@given(timelines(), st.integers(1, 10))
def test_an_outline_keeps_the_peak_in_few_points(timeline, max_points):
    outline = timeline.outline(max_points)
    assert len(outline) <= max_points
    assert max(num_bytes for _, num_bytes in outline) == timeline.peak().peak_bytes


def test_a_kernel_counts_with_what_lives_before_it_and_what_it_holds_inside():
    """Two calls: the first leaves 10 bytes and holds 50 inside, the second leaves 30 and holds nothing more."""
    blocks = (
        Block(100, "parameters", allocated=0),
        Block(10, "activations", allocated=1, call=0),
        Block(30, "activations", allocated=2, call=1),
    )
    timeline = Timeline(blocks, num_events=3, call_positions=(1, 2))
    assert timeline.peak().peak_bytes == 100 + 10 + 30
    inside = timeline.peak(internal={0: 50, 1: 30})
    assert (inside.peak_bytes, inside.call, inside.internal_bytes) == (100 + 50, 0, 50)
    assert inside.by_part() == {"parameters": 100, "inside the kernel": 50}


def test_a_peak_can_be_asked_of_the_steps_after_a_mark():
    """Building held 500 bytes for a moment; the step itself never did."""
    blocks = (Block(500, "temporaries", allocated=0, freed=1), Block(20, "activations", allocated=2))
    timeline = Timeline(blocks, num_events=3, marks={"step 1": 2})
    assert timeline.peak().peak_bytes == 500
    assert timeline.peak(since=timeline.marks["step 1"]).peak_bytes == 20


def test_largest_blocks_come_first_and_modules_are_summed():
    blocks = (
        Block(1, "activations", "a", allocated=0),
        Block(5, "activations", "b", allocated=1),
        Block(2, "activations", "a", allocated=2),
    )
    peak = Timeline(blocks, num_events=3).peak()
    assert [block.num_bytes for block in peak.blocks] == [5, 2, 1]
    assert peak.by_module() == {"b": 5, "a": 3}


def test_thirty_thousand_events_are_swept_in_one_pass():
    """Each of 15,000 blocks lives for one event: the peak is one block, found without looking at each position anew."""
    blocks = tuple(Block(8, "temporaries", allocated=2 * i, freed=2 * i + 1) for i in range(15_000))
    timeline = Timeline(blocks, num_events=30_000)
    assert timeline.peak().peak_bytes == 8
    assert len(timeline.events()) == 30_000
