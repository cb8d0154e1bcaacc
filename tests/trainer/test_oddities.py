import math
from pathlib import Path

import pytest

from torchledger.trainer.events import Step
from torchledger.trainer.oddities import impossible_mfu, is_unusual_start, unusual_start


def step(**figures):
    """A step with these figures and nothing odd in the others."""
    plain = {"step": 0, "loss": math.log(100), "mfu": None, "hfu": None, "document_pairs": None, "skipped": False}
    return Step(**{**dict.fromkeys(Step.__slots__, 1), **plain, **figures})


@pytest.mark.parametrize(("loss", "unusual"), [(8.318, False), (8.16, False), (8.48, False), (8.14, True), (9.0, True)])
def test_a_first_loss_is_unusual_beyond_two_percent(loss, unusual):
    """ln(4096) is 8.3178; two percent of it is 0.166."""
    assert is_unusual_start(loss, 4096) == unusual


def test_only_the_first_step_is_held_against_even_odds():
    """ln(100) is 4.605: 5 is odd at step 0 and fine at step 1; a loss that is no number is told elsewhere."""
    assert "not within 2 % of ln(vocabulary) = 4.6052" in unusual_start(step(loss=5.0), 100, None)
    assert not unusual_start(step(loss=5.0, step=1), 100, None)
    assert not unusual_start(step(), 100, None)
    assert not unusual_start(step(loss=math.nan), 100, None)


def test_weights_that_were_trained_may_know_more_but_not_less():
    """A low first loss is what trained weights are for; one above even odds means another tokenizer."""
    assert not unusual_start(step(loss=2.0), 100, Path("weights"))
    assert "was it prepared with their tokenizer?" in unusual_start(step(loss=5.0), 100, Path("weights"))


@pytest.mark.parametrize(("mfu", "odd"), [(None, False), (0.4, False), (1.0, False), (1.04, True)])
def test_more_than_the_peak_is_a_wrong_denominator(mfu, odd):
    """MFU of 1 is the peak itself; more cannot be."""
    assert bool(impossible_mfu(step(mfu=mfu))) == odd
