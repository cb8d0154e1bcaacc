import pytest

from torchledger.view.screen import Bar, Bars, Facts, Lines, Row, Table, table
from torchledger.view.style import Style, to_ascii
from torchledger.view.terminal import bar, draw

SCREEN = (
    Lines(("the answer",), mark="headline"),
    Table(
        ("<module", "FLOPs"),
        (
            Row(("layers", "30")),
            Row(("up", "20"), depth=1),
            Row(("down", "10"), depth=1),
            Row(("total", "30"), mark="total"),
        ),
        "by module",
        "convention: full",
    ),
    Bars((Bar("parameters", 0.5, "1 GiB"), Bar("all", 1.5, "3 GiB")), "memory"),
    Facts((("peak", "2 GiB"), ("a long name", "one\ntwo"))),
)


def test_plain_text_is_aligned():
    """In a pipe, columns line up with two spaces between them, and nothing is boxed."""
    lines = draw((SCREEN[1],)).splitlines()
    assert lines == [
        "by module",
        "module   FLOPs",
        "layers      30",
        "├─ up       20",
        "└─ down     10",
        "total       30",
        "convention: full",
    ]


def test_a_value_of_two_lines_stays_in_its_column():
    """Facts line up, further lines of a value too."""
    assert draw((SCREEN[3],)) == "peak         2 GiB\na long name  one\n             two\n"


@pytest.mark.parametrize("style", [Style(unicode=False), Style(rich=True, unicode=False, width=80)])
def test_ascii_is_ascii(style):
    """Where the encoding can show nothing else, every sign is ASCII."""
    assert draw(SCREEN, style).isascii()


def test_a_terminal_without_color_gets_no_escapes():
    """Boxes do not mean colours: without them there is no escape sequence."""
    assert "\x1b" not in draw(SCREEN, Style(rich=True, color=False))
    assert "\x1b[" in draw(SCREEN, Style(rich=True, color=True))


def test_every_text_is_on_every_screen():
    """However a screen is drawn, its texts are there."""
    for style in (Style(), Style(rich=True), Style(rich=True, color=True)):
        text = draw(SCREEN, style)
        for shown in ("the answer", "by module", "layers", "convention: full", "parameters", "1 GiB", "two"):
            assert shown in text


def test_a_text_is_never_markup():
    """Square brackets in a name are shown, not read as instructions."""
    assert "[red]x[/red]" in draw((table(("<a",), [("[red]x[/red]",)]),), Style(rich=True))


def test_lines_fit_the_width():
    """On a terminal no line is wider than the terminal."""
    wide = (table(("<a", "<b"), [("x" * 90, "word " * 30)]),)
    assert all(len(line) <= 60 for line in draw(wide, Style(rich=True, width=60)).splitlines())


@pytest.mark.parametrize(("share", "expected"), [(0, "░░░░"), (0.25, "█░░░"), (1, "████"), (7, "████"), (-1, "░░░░")])
def test_a_bar_is_its_share(share, expected):
    """A bar is as long as its share, and never longer than its place."""
    assert bar(share, 4) == expected


def test_ascii_replaces_what_it_cannot_say():
    """Accents go, the rest becomes a question mark."""
    assert to_ascii("é 中 ≤ 5 µs") == "e ? <= 5 us"


@pytest.mark.parametrize("style", [Style(), Style(rich=True, width=120)])
def test_a_text_cannot_command_the_terminal(style):
    """Escape sequences in a text, such as a model may write, are shown and not obeyed."""
    evil = "before\x1b[2J\x07after"
    screen = (Lines((evil,)), Facts(((evil, evil),)), table((f"<{evil}",), [(evil,)]), Bars((Bar(evil, 0.5, evil),)))
    text = draw(screen, style)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.count("before�[2J�after") == 1 + 2 + 2 + 2
