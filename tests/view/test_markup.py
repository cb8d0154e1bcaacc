from html.parser import HTMLParser

from torchledger.view.markup import fragment
from torchledger.view.screen import Bar, Bars, Facts, Lines, Row, Table

EVIL = "<script>alert('1')</script> & \"quotes\""


class Texts(HTMLParser):
    """Collects what a browser would show and which elements it would make."""

    def __init__(self):
        super().__init__()
        self.texts, self.tags = [], []

    def handle_data(self, data):  # noqa: D102 - called by the parser
        self.texts.append(data)

    def handle_starttag(self, tag, attrs):  # noqa: ARG002, D102 - called by the parser
        self.tags.append(tag)


def parsed(screen):
    parser = Texts()
    parser.feed(fragment(screen))
    return parser


def test_every_text_is_escaped():
    """Wherever a text stands, it is shown as it is and never becomes an element."""
    screen = (
        Table((f"<{EVIL}", f" {EVIL}"), (Row((EVIL, EVIL)),), EVIL, EVIL),
        Bars((Bar(EVIL, 0.5, EVIL),), EVIL, EVIL),
        Facts(((EVIL, EVIL),), EVIL),
        Lines((EVIL,), EVIL),
        Lines((EVIL,), EVIL, "code"),
    )
    page = parsed(screen)
    assert "script" not in page.tags
    assert page.texts.count(EVIL) == (1 + 2 + 2) + 4 + 3 + 2 + 2


def test_a_bar_stays_in_its_track():
    """A share over one fills the track and is marked, it does not leave it."""
    html = fragment((Bars((Bar("a", 3.0, "x"),)),))
    assert "width:100.00%" in html
    assert "over" in html


def test_a_tree_is_indented():
    """Deeper rows stand further in."""
    html = fragment((Table(("<a",), (Row(("root",)), Row(("leaf",), depth=2))),))
    assert html.index("root") < html.index("padding-left:3.0em") < html.index("leaf")
