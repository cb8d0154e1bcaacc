import json

import pytest

from torchledger.memory import Block, Timeline, TimelineFormatError, from_json, to_json

TIMELINE = Timeline(
    blocks=(
        Block(64, "parameters", name="weight", shape=(4, 4), allocated=0),
        Block(32, "activations", "layers.0", "aten.mm.default", "forward", "", (8,), "fp32", "net.py:3", 0, 1, 2),
    ),
    num_events=3,
    call_positions=(1,),
    marks={"step 1": 1},
)


def test_a_timeline_is_the_same_after_writing_and_reading():
    assert from_json(to_json(TIMELINE)) == TIMELINE


def test_each_string_is_written_once():
    data = json.loads(to_json(TIMELINE))
    assert len(data["texts"]) == len(set(data["texts"]))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: data.update(schema="torchledger.timeline/9"), "schema torchledger.timeline/2"),
        (lambda data: data.update(num_events=4), "do not fill the 4 events"),
        (lambda data: data.pop("marks"), "marks"),
        (lambda data: data["texts"].__setitem__(0, "cake"), "part is 'cake'"),
        (lambda data: data.pop("blocks"), "not a timeline"),
    ],
)
def test_a_file_that_is_no_timeline_says_what_is_wrong(spoil, message):
    data = json.loads(to_json(TIMELINE))
    spoil(data)
    with pytest.raises(TimelineFormatError, match=message):
        from_json(json.dumps(data))


def test_text_that_is_no_json_says_so():
    with pytest.raises(TimelineFormatError, match="not JSON"):
        from_json("{")
