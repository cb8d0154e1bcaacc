import io

import pytest

from torchledger.cli import progress as room
from torchledger.cli.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [0.0]
    monkeypatch.setattr(room.time, "perf_counter", lambda: now[0])
    return now


def run(clock, moments, **options):
    stream = io.StringIO()
    bar = Progress(stream=stream, **options)
    for clock[0], done in moments:
        bar(done, 100, "encoding")
    bar.close()
    return stream.getvalue()


def test_short_work_shows_nothing(clock):
    """Within the first second there is no bar."""
    assert run(clock, [(0.0, 0), (0.5, 50), (0.9, 90)], on_terminal=True) == ""


def test_long_work_shows_share_and_time_left(clock):
    """At 25 % after 2 seconds, 6 are left."""
    text = run(clock, [(0.0, 0), (2.0, 25)], on_terminal=True)
    assert "encoding" in text
    assert "25 %" in text
    assert "6 s left" in text


@pytest.mark.parametrize("on_terminal", [True, False])
def test_where_work_is_unequal_no_time_left_is_told(clock, on_terminal):
    """The share alone."""
    text = run(clock, [(0.0, 0), (20.0, 25)], on_terminal=on_terminal, foretells=False)
    assert "25 %" in text
    assert "left" not in text


def test_the_bar_goes_away(clock):
    """When the work is done the line is empty again."""
    assert run(clock, [(0.0, 0), (2.0, 25)], on_terminal=True).endswith("\r\x1b[K")


def test_a_log_gets_a_line_every_ten_seconds(clock):
    """In a log nothing is overwritten and little is said."""
    text = run(clock, [(float(s), s) for s in range(26)], on_terminal=False)
    assert text == "encoding: 10 %, 1m 30s left\nencoding: 20 %, 1m 20s left\n"


def test_quiet_is_quiet(clock):
    """Under --quiet there is no bar."""
    assert run(clock, [(0.0, 0), (5.0, 50)], on_terminal=True, quiet=True) == ""
