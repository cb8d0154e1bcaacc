import re

import pytest

from torchledger.planner.constants import Constants
from torchledger.planner.fitted import Fitted
from torchledger.view.plan_calibration import RowFit, calibration_screen
from torchledger.view.terminal import draw


@pytest.fixture
def text():
    """Two rows, one of them outside of its interval."""
    fitted = Fitted(Constants(matmul_share=0.8), ("matmul_share",), ((0.01,),), 0.03, 4.0, 2, 0.2, 0.05, 0.1)
    rows = (
        RowFit("line 2", 10.0, 8.0, 9.0, 9.9, (9.0, 11.0)),
        RowFit("line 3", 20.0, 18.0, 20.0, 21.0, (20.5, 21.5)),
    )
    screen = calibration_screen(fitted, Constants(matmul_share=0.9), rows, saved="mine.toml", assumptions=["adamw"])
    return draw(screen)


def test_errors_before_and_after_come_first(text):
    """How far off predictions were and are: after is the mean of the column of that name, (1 % + 5 %) / 2."""
    told = (
        "2 rows fitted: mean absolute error of a step 20 % before, 3 % after (5 % by the constants alone); 10 % where"
    )
    assert text.replace("\n", " ").startswith(told)
    columns = re.split(r"  +", next(line for line in text.splitlines() if line.startswith("row ")))
    row = re.split(r"  +", next(line for line in text.splitlines() if line.startswith("line 3")))
    assert row[columns.index("after") + 1] == "+5 %"


def test_where_it_was_saved_and_how_it_is_used(text):
    """The file's name, and the option that reads it."""
    assert "saved in mine.toml" in text
    assert "--constants mine.toml" in text


def test_constants_have_their_range(text):
    """0.9 before, 0.8 after, e^(±1.645 · 0.1) about it."""
    line = next(line for line in text.splitlines() if line.startswith("matmul_share"))
    assert line.split() == ["matmul_share", "0.9", "0.8", "0.679", "0.943"]


def test_rows_outside_of_their_interval_are_counted(text):
    """One of two lies inside."""
    assert "1 of 2 measured steps lie in their 90 % interval" in text
    line = next(line for line in text.splitlines() if line.startswith("line 2"))
    assert "-20 %" in line
    assert "-1 %" in line


def test_default_constants_that_are_kept_are_told():
    """No constants in a table, and why."""
    fitted = Fitted(Constants(), (), (), 0.03, 5.0, 2, 0.02, 0.02, 0.06)
    rows = (RowFit("line 2", 10.0, 9.8, 9.8, 9.8, (9.0, 11.0)),)
    text = draw(calibration_screen(fitted, Constants(), rows, saved="mine.toml"))
    assert text.startswith("2 rows: the default constants are kept, mean absolute error of a step 2 %")
    assert "each row foretold by the others is 6 % off" in text.replace("\n", " ")
    assert "matmul_share" not in text
