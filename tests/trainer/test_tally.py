from torchledger.trainer.spikes import WINDOW
from torchledger.trainer.tally import Tally


def rows(losses, skipped=(), seconds=1.0, session=0):
    """Rows of steps with these losses, a second each, the first three of them warm-up."""
    return [
        {
            "kind": "step",
            "step": step,
            "loss": loss,
            "gradient_norm": None,
            "seconds": seconds,
            "data_wait_s": 0.0,
            "num_tokens": 64,
            "warm_up": step < 3,
            "skipped": step in skipped,
            "session": session,
        }
        for step, loss in enumerate(losses)
    ]


def add(tally, step, loss=2.0, seconds=1.0, skipped=False):
    return tally.add(step, loss, None, seconds=seconds, waited=0.0, num_tokens=64, skipped=skipped)


def test_warm_up_and_skipped_steps_are_in_no_pace():
    """Of steps of 9, 9, 9, 1, 5 (skipped) and 3 seconds after a resume the median of 1 and 3 is 2."""
    tally = Tally(rows([4.0] * 10), 64, 10)
    for number, seconds in enumerate((9.0, 9.0, 9.0, 1.0, 5.0, 3.0)):
        add(tally, 10 + number, seconds=seconds, skipped=number == 4)
    assert tally.step_s == tally.recent_step_s == 2.0


def test_a_session_of_no_step_has_the_earlier_pace():
    """A run that is resumed at its end tells the pace it had; how fast it goes now is unknown."""
    tally = Tally(rows([4.0] * 10), 64, 10)
    assert tally.step_s == 1.0
    assert tally.recent_step_s is None


def test_paces_of_two_sessions_are_never_mixed():
    """Ten steps of 1 s, ten of 4 s after a resume: a third session without steps tells 4 s, the last pace there was."""
    slow = [{**row, "step": row["step"] + 10} for row in rows([4.0] * 10, seconds=4.0, session=1)]
    tally = Tally(rows([4.0] * 10) + slow, 64, 20)
    assert tally.step_s == 4.0
    assert tally.number == 2


def test_a_session_that_only_warmed_up_has_no_pace():
    """Two steps after a resume are warm-up: what they took is unknown, and the earlier session's pace is not theirs."""
    tally = Tally(rows([4.0] * 10), 64, 10)
    add(tally, 10, seconds=9.0)
    add(tally, 11, seconds=9.0)
    assert tally.step_s is None
    only_warm_up = [{**row, "step": row["step"] + 10} for row in rows([4.0] * 2, session=1)]
    assert Tally(rows([4.0] * 10) + only_warm_up, 64, 12).step_s is None


def test_session_and_life_are_counted_apart():
    """After a resume at step 10, two steps are two of the session and twelve of the run."""
    tally = Tally(rows([4.0] * 10, skipped=(5,)), 64, 10)
    add(tally, 10)
    add(tally, 11)
    assert (tally.session.num_steps, tally.session.num_tokens, tally.session.num_skipped) == (2, 128, 0)
    assert (tally.lifetime.num_steps, tally.lifetime.num_tokens, tally.lifetime.num_skipped) == (12, 768, 1)


def test_the_streak_of_skipped_steps_outlives_a_resume():
    """Two skipped before and one after are three in a row; a good step ends it."""
    tally = Tally(rows([4.0, None, None], skipped=(1, 2)), 64, 3)
    assert tally.streak == 2
    add(tally, 3, skipped=True)
    assert tally.streak == 3
    add(tally, 4)
    assert tally.streak == 0


def test_first_and_last_loss_are_the_runs_own():
    """The first is that of step 0 in whatever session, the last that of the last step."""
    tally = Tally(rows([5.0, 4.0]), 64, 2)
    assert (tally.initial_loss, tally.final_loss) == (5.0, 4.0)
    add(tally, 2, loss=3.0)
    assert (tally.initial_loss, tally.final_loss) == (5.0, 3.0)


def test_a_spike_after_a_resume_is_judged_by_the_steps_before_it():
    """The first step of a session may be a spike, held against the rows of the one before."""
    calm = [2.0 + 0.01 * (i % 5) for i in range(WINDOW)]
    (spike,) = add(Tally(rows(calm), 64, WINDOW), WINDOW, loss=9.0)
    assert (spike.quantity, spike.value, spike.usual) == ("loss", 9.0, 2.02)
