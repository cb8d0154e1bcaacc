import pytest

from torchledger.planner.schedule import in_flight
from torchledger.planner.schedule_order import interleaved_warm_up, micro_batch_group, neighbours, order

CASES = [
    ("gpipe", 4, 1, 6),
    ("1f1b", 4, 1, 8),
    ("1f1b", 4, 1, 2),
    ("interleaved", 4, 2, 8),
    ("interleaved", 4, 3, 9),
    ("zero-bubble", 4, 1, 8),
    ("zero-bubble", 4, 1, 3),
    ("dualpipe", 4, 2, 8),
    ("dualpipe", 6, 2, 14),
    ("1f1b", 1, 1, 3),
]


def names(turns):
    """Turns as text: F forward, B both gradients, I input gradient, W weight gradient; pairs joined by &."""
    letters = {"forward": "F", "backward": "B", "input gradient": "I", "weight gradient": "W"}
    return " ".join("&".join(f"{letters[p.what]}{p.micro_batch}" + "'" * p.chunk for p in turn) for turn in turns)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_rank_runs_every_piece_once(case):
    """Each micro-batch of each chunk runs forward once, has both gradients once, and in this order."""
    schedule, num_stages, num_chunks, num_micro_batches = case
    for turns in order(*case):
        seen: dict[tuple[int, int], str] = {}
        for piece in (piece for turn in turns for piece in turn):
            seen[piece.chunk, piece.micro_batch] = seen.get((piece.chunk, piece.micro_batch), "") + piece.what[0]
        assert set(seen.values()) <= {"fb", "fiw"}
        per_chunk = num_micro_batches // 2 if schedule == "dualpipe" and num_stages > 1 else num_micro_batches
        assert len(seen) == num_chunks * per_chunk


def test_1f1b_is_megatrons():
    """Stage 1 of 4: two warm-up passes, then one forward and one backward pass in turn, then what is left."""
    turns = order("1f1b", 4, 1, 5)[1]
    assert names(turns) == "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4"


def test_interleaved_is_megatron_cores_table():
    """2 stages, 2 chunks, 5 micro-batches in groups of 3 (the example in Megatron-Core's get_schedule_table)."""
    turns = order("interleaved", 2, 2, 5)[1]
    assert micro_batch_group(2, 5) == 3
    assert interleaved_warm_up(2, 2, 5, 1) == 0 + (2 - 1) * 3
    assert [names((turn,)) for turn in turns if turn[0].what == "forward"] == (
        ["F0", "F1", "F2", "F0'", "F1'", "F2'", "F3", "F4", "F3'", "F4'"]
    )
    assert [names((turn,)) for turn in turns if turn[0].what == "backward"] == (
        ["B0'", "B1'", "B2'", "B0", "B1", "B2", "B3'", "B4'", "B3", "B4"]
    )


def test_zero_bubble_delays_weight_gradients_by_the_same_turns_everywhere():
    """ZB-H1 of 4 stages: on each, weight gradients start in the turn of forward pass 3 (arXiv:2401.10241, Figure 2)."""
    first, _, _, last = (names(turns) for turns in order("zero-bubble", 4, 1, 5))
    assert first == "F0 F1 F2 F3 I0 W0 F4 I1 W1 I2 W2 I3 W3 I4 W4"
    assert last == "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 W2 W3 W4"


def test_dualpipe_is_symmetric():
    """What rank r does with the micro-batches of one end, rank p - 1 - r does with those of the other."""
    ranks = order("dualpipe", 6, 2, 14)
    for turns, mirrored in zip(ranks, reversed(ranks), strict=True):
        swapped = [tuple((p.what, 1 - p.chunk, (p.micro_batch + 7) % 14) for p in turn) for turn in mirrored]
        assert [tuple(turn) for turn in turns] == swapped


def test_dualpipe_starts_as_published():
    """Rank 0 of 8 with 20 micro-batches: 6 + 1 forward passes before the first one from the other end arrives."""
    turns = order("dualpipe", 8, 2, 20)[0]
    assert names(turns).startswith("F0 F1 F2 F3 F4 F5 F6 F10' I10' W10' F11' I11' W11' F12' I12' W12' F13' F7&B13'")


def test_a_group_is_never_smaller_than_the_stages():
    """Megatron-Core runs groups of at least the stages whose last one is not smaller either."""
    for num_stages in (2, 3, 4, 8):
        for num_micro_batches in range(num_stages, 40):
            group = micro_batch_group(num_stages, num_micro_batches)
            assert num_stages <= group <= num_micro_batches
            assert num_micro_batches % group == 0 or num_micro_batches % group >= num_stages
    assert [micro_batch_group(4, m) for m in (8, 64)] == [4, 4]


def test_forward_and_back_are_the_same_way():
    """What comes after something comes before what follows it; dualpipe goes both ways and never crosses."""
    for schedule, num_chunks in (("1f1b", 1), ("interleaved", 3), ("dualpipe", 2)):
        before, after = neighbours(schedule, 4, num_chunks)
        assert {there: here for here, there in after.items()} == before
        assert len(after) == 4 * num_chunks - (2 if schedule == "dualpipe" else 1)
    assert neighbours("dualpipe", 4, 2)[1][2, 1] == (1, 1)


def test_one_stage_accumulates():
    """Without a pipeline a micro-batch is done before the next begins."""
    assert names(order("gpipe", 1, 1, 2)[0]) == "F0 B0 F1 B1"
    assert in_flight("gpipe", 1, 1, 2) == ((1,),)
