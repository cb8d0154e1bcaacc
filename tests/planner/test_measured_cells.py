"""Words of tables become words of recipes and strategies, or a noted mistake."""

import pytest

from torchledger.planner.measured_cells import Cells, column_of, precision_of, recompute_of, sharding_of


@pytest.mark.parametrize("text", ["", "unstated", "unstated (see recipe of the release)", "see submission config", "?"])
def test_what_a_source_does_not_tell_is_unknown(text):
    """It is neither a value nor a mistake."""
    cells = Cells({"recompute": text})
    assert (cells.has("recompute"), cells.mistakes) == (False, [])


@pytest.mark.parametrize(
    ("column", "text", "words"),
    [
        ("tp", "0", "at least 1"),
        ("tp", "two", "cannot read"),
        ("step_time_s", "-1", "more than 0"),
        ("step_time_s", "1,2", "write a point"),
    ],
)
def test_a_wrong_number_is_noted(column, text, words):
    """Reading goes on with nothing in its place."""
    cells = Cells({column: text})
    assert (cells.whole if column == "tp" else cells.number)(column) is None
    assert words in cells.mistakes[0][1]


def test_a_comma_in_a_cell_groups_three_digits():
    """`1,234.5` is a number, `1,2` is none (it may be 1.2, and is not 12), and the other cells are read on."""
    cells = Cells({"step_time_s": "1,2", "tokens_per_s_per_gpu": "1,234.5", "memory_gib": "1234,567"})
    names = ("step_time_s", "tokens_per_s_per_gpu", "memory_gib")
    assert [cells.number(name) for name in names] == [None, 1234.5, None]
    assert [column for column, _ in cells.mistakes] == ["step_time_s", "memory_gib"]


@pytest.mark.parametrize(
    ("text", "sharding"),
    [
        ("FULL_SHARD", (3, 0, True)),
        ("FSDP (optimizer+gradients sharded, no re-shard of weights after forward)", (3, 0, False)),
        ("FSDP2 (64-way)", (3, 64, True)),
        ("FSDP2 (ZeRO-3)", (3, 0, True)),
        ("ZeRO-1 (DeepSpeed)", (1, 0, True)),
        ("ZeRO-0", (0, 0, True)),
        ("distributed optimizer (ZeRO-1)", (1, 0, True)),
        ("half of it", None),
    ],
)
def test_sharding_is_told_by_many_words(text, sharding):
    """ZeRO level, shard group, and whether gathered weights are given back."""
    assert sharding_of(text) == sharding


def test_words_for_precision_and_recompute():
    """As published tables spell them."""
    assert [precision_of(text) for text in ("FP8 (hybrid)", "bf16 (pure)", "fp16/bf16 mixed")] == [
        "fp8",
        "bf16",
        "fp16",
    ]
    assert [recompute_of(text) for text in ("full", "none for the 8K configuration", "remat")] == ["full", "none", None]


def test_columns_have_other_names_and_some_are_passed_over():
    """What a tool printed beside is no mistake."""
    assert [column_of(name) for name in ("Chip", "chips", "mfu")] == ["gpu", "n_gpus", None]
