from torchledger.trainer.counters import Counters

ROWS = [
    {"kind": "step", "step": 0, "seconds": 2.0, "data_wait_s": 0.5, "num_tokens": 64, "skipped": False},
    {"kind": "spike", "step": 0},
    {"kind": "evaluation", "step": 1, "seconds": 9.0},
    {"kind": "step", "step": 1, "seconds": 1.0, "data_wait_s": 0.25, "num_tokens": 64, "skipped": True},
]


def test_rows_are_added_up():
    """Two steps of 64 tokens, one skipped, one spike; evaluation is no training."""
    assert Counters.of_rows(ROWS, 64) == Counters(2, 128, 1, 1, 3.0, 0.75)


def test_rows_of_before_tokens_were_told_count_by_the_recipe():
    """A row without a number of tokens has the recipe's, and was not skipped."""
    assert Counters.of_rows([{"kind": "step", "seconds": 1.0, "data_wait_s": 0.0}], 32) == Counters(
        1, 32, 0, 0, 1.0, 0.0
    )


def test_sessions_add_up_to_a_life():
    """Every count is the sum of both."""
    assert Counters(1, 2, 3, 4, 5.0, 6.0) + Counters(10, 20, 30, 40, 50.0, 60.0) == Counters(11, 22, 33, 44, 55.0, 66.0)


def test_the_share_of_waiting_is_unknown_where_nothing_ran():
    """A quarter of three seconds' training was waiting; of none there is no share, not 0."""
    assert Counters.of_rows(ROWS, 64).data_wait_share == 0.75 / 3
    assert Counters().data_wait_share is None
