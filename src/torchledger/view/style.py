"""`Style`: what the place that shows a screen can do. The cli finds out, the view obeys."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

_ASCII = str.maketrans(
    {
        "─": "-", "│": "|", "├": "|", "└": "`", "█": "#", "▉": "#", "▊": "#", "▋": "#", "▌": "#", "▍": "-", "▎": "-",
        "▏": "-", "░": ".", "·": "*", "×": "x", "–": "-", "—": "-", "−": "-", "µ": "u", "μ": "u", "…": "...", "≈": "~",
        "≤": "<=", "≥": ">=", "→": "->", "²": "^2", "³": "^3", "√": "sqrt", "‘": "'", "’": "'", "“": '"', "”": '"',
        "±": "+-", "✓": "ok", "✗": "x", "\xa0": " ",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Style:
    """How to draw.

    Attributes:
        rich: boxes, bold and layout for a terminal; otherwise plain aligned text.
        color: colours too.
        unicode: the encoding can show `█ ├ ·`; otherwise ASCII takes their place.
        width: columns of the terminal.
    """

    rich: bool = False
    color: bool = False
    unicode: bool = True
    width: int = 100


PLAIN = Style()


# Signs that a terminal would obey instead of showing: all control codes but tab and newline.
_CONTROLS = {code: "�" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def shown(text: str) -> str:
    r"""The text with every control code as `�`: what a model wrote must not move the cursor or rename the window.

    >>> shown("a\x1b[2Jb\n")
    'a�[2Jb\n'
    """
    return text.translate(_CONTROLS)


def to_ascii(text: str) -> str:
    """The text in ASCII: a sign that has a stand-in becomes it, accents go, anything else becomes `?`.

    >>> to_ascii("├─ 3 × 4 µs")
    '|- 3 x 4 us'
    """
    plain = unicodedata.normalize("NFKD", text.translate(_ASCII))
    return "".join(c for c in plain if not unicodedata.combining(c)).encode("ascii", "replace").decode("ascii")
