import io

import pytest

from torchledger.cli.output import style_of


class Stream(io.StringIO):
    """A stream that says it is a terminal, or not, and in which encoding."""

    def __init__(self, *, terminal, encoding="utf-8"):
        super().__init__()
        self._terminal, self._encoding = terminal, encoding

    def isatty(self):  # noqa: D102 - asked by the code under test
        return self._terminal

    @property
    def encoding(self):  # noqa: D102 - asked by the code under test
        return self._encoding


TERMINAL, PIPE = Stream(terminal=True), Stream(terminal=False)


@pytest.mark.parametrize(
    ("stream", "environment", "rich", "color"),
    [
        (TERMINAL, {}, True, True),
        (PIPE, {}, False, False),
        (TERMINAL, {"NO_COLOR": "1"}, True, False),
        (TERMINAL, {"NO_COLOR": ""}, True, True),
        (TERMINAL, {"TERM": "dumb"}, False, False),
        (PIPE, {"FORCE_COLOR": "1"}, True, True),
        (PIPE, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_colours_and_boxes_only_where_they_are_wanted(stream, environment, rich, color):
    """A terminal gets both, a pipe neither; NO_COLOR, FORCE_COLOR and TERM=dumb are honoured."""
    style = style_of(stream, environment)
    assert (style.rich, style.color) == (rich, color)


def test_no_color_wins():
    """`--no-color` is stronger than everything."""
    assert not style_of(TERMINAL, {"FORCE_COLOR": "1"}, no_color=True).color


@pytest.mark.parametrize(
    ("encoding", "unicode"), [("utf-8", True), ("ascii", False), ("latin-1", False), (None, False)]
)
def test_the_encoding_decides_the_signs(encoding, unicode):
    """Where `█` and `├` cannot be encoded, ASCII takes their place."""
    assert style_of(Stream(terminal=False, encoding=encoding), {}).unicode is unicode


def test_the_width_is_the_terminals(monkeypatch):
    """COLUMNS sets the width."""
    monkeypatch.setenv("COLUMNS", "57")
    assert style_of(PIPE, {}).width == 57
