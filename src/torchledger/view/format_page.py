"""Number formats as a page that stands alone: bits in boxes, ladders on a line of numbers, all tables. No script."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from torchledger.formats import Rung
from torchledger.view.document import document, section
from torchledger.view.format_numbers import number_text
from torchledger.view.record import plain
from torchledger.view.screen import Screen

DATA_ID = "torchledger-format"

_BOX, _GAP = 12, 8

#: So many numbers of a ladder have room for their text; of more, only the ends and the nearest are written.
_WRITTEN = 9

_COLORS = {"s": "#c2504a", "e": "#3d7cc9", "m": "#3c9a63", "i": "#8a6bbf"}
_WORDS = {"s": "sign", "e": "exponent", "m": "mantissa", "i": "integer"}


@dataclass(frozen=True, slots=True)
class Bits:
    """A pattern to draw.

    Attributes:
        label: what stands before it.
        pattern: its bits, fields apart; the scale's and the element's apart by ` · `.
        layout: a letter for each bit, spaced alike: s, e, m or i.
        note: what stands after it.
    """

    label: str
    pattern: str
    layout: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Steps:
    """A ladder to draw on a line of numbers.

    Attributes:
        format: whose numbers they are.
        text: the number that was asked for, as it was written.
        number: the same; infinite where no float holds it.
        rungs: its neighbours.
    """

    format: str
    text: str
    number: float
    rungs: tuple[Rung, ...]

    @property
    def title(self) -> str:
        """What stands above it."""
        return f"{self.format} around {self.text}"


def format_page(
    title: str, screen: Screen, answer: Any, *, bits: Sequence[Bits] = (), ladders: Sequence[Steps] = ()
) -> str:
    """One HTML document.

    Args:
        title: heading and title of the window.
        screen: what the terminal shows.
        answer: what `--json` gives, kept inside for whoever reads the page back.
        bits: patterns to draw above the tables.
        ladders: lines of numbers to draw below the patterns.
    """
    parts = [f"<h1>{escape(title)}</h1>"]
    if bits:
        parts.append(f"<h2>Bits</h2>\n{_legend(bits)}\n{bits_svg(bits)}")
    parts.extend(f"<h2>{escape(each.title)}</h2>\n{ladder_svg(each)}" for each in ladders if len(_drawn(each)) > 1)
    parts.append(section("In numbers", screen))
    data = json.dumps(plain(answer), allow_nan=False, default=str)
    return document(title, "\n".join(parts), {}, data_id=DATA_ID, data_json=data)


def bits_svg(bits: Sequence[Bits]) -> str:
    """Patterns below each other, a box a bit, coloured by field."""
    label_width = 7 * max(len(each.label) for each in bits) + 12
    drawings, widest = [], 0.0
    for row, each in enumerate(bits):
        y, x = row * (_BOX + 9) + 2, float(label_width)
        drawings.append(_text(0, y + 12, each.label, "var(--ink)"))
        for bit, field in zip(each.pattern, each.layout, strict=True):
            if field in _COLORS:
                drawings.append(
                    f'<rect x="{x:g}" y="{y}" width="{_BOX}" height="{_BOX + 3}" fill="{_COLORS[field]}"'
                    f' fill-opacity="{0.85 if bit == "1" else 0.22}" stroke="{_COLORS[field]}"/>'
                )
                drawings.append(_text(x + 3, y + 13, bit, "#ffffff" if bit == "1" else "var(--ink)"))
                x += _BOX
            else:
                x += _GAP / 2 if field == " " else _GAP
        drawings.append(_text(x + 10, y + 13, each.note, "var(--quiet)"))
        widest = max(widest, x + 20 + 7 * len(each.note))
    height = len(bits) * (_BOX + 9) + 6
    return _svg(widest, height, drawings, "bits of each format, coloured by sign, exponent and mantissa")


def ladder_svg(steps: Steps) -> str:
    """The rungs to scale on a line, the number that was asked for as a triangle above it."""
    drawn = _drawn(steps)
    low, high = drawn[0].value, drawn[-1].value
    width, margin = 860.0, 70.0

    def place(value: float) -> float:
        # halves first: the span of FP64's largest numbers is beyond every float
        share = (value / 2 - low / 2) / (high / 2 - low / 2)
        return margin + min(max(share, -0.05), 1.05) * (width - 2 * margin)

    drawings = [f'<line x1="10" y1="50" x2="{width - 10:g}" y2="50" stroke="var(--quiet)"/>']
    for index, rung in enumerate(drawn):
        x, nearest = place(rung.value), rung.steps == 0
        color = "var(--good)" if nearest else "var(--ink)"
        drawings.append(
            f'<line x1="{x:.1f}" y1="40" x2="{x:.1f}" y2="60" stroke="{color}" stroke-width="{2 + nearest}"/>'
        )
        if len(drawn) <= _WRITTEN or nearest or index in {0, len(drawn) - 1}:
            text = number_text(rung.value, steps.format)
            drawings.append(_text(x, 76 + 15 * (rung.steps % 2), text, color, anchor="middle"))
    x = place(steps.number)
    drawings.append(f'<path d="M{x:.1f} 38 l-5 -9 l10 0 z" fill="var(--bad)"/>')
    drawings.append(_text(x, 22, steps.text, "var(--bad)", anchor="middle"))
    return _svg(width, 100, drawings, f"{steps.title}, to scale")


def _drawn(steps: Steps) -> list[Rung]:
    return [rung for rung in steps.rungs if math.isfinite(rung.value)]


def _legend(bits: Sequence[Bits]) -> str:
    used = dict.fromkeys(letter for each in bits for letter in each.layout if letter in _COLORS)
    words = (f'<span style="color:{_COLORS[letter]};font-weight:600">■ {_WORDS[letter]}</span>' for letter in used)
    return f"<p>{' &nbsp; '.join(words)}</p>"


def _text(x: float, y: float, text: str, color: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y}" fill="{color}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(width: float, height: int, drawings: Sequence[str], says: str) -> str:
    """A drawing that scrolls where the window is narrower, and says what it is to those who hear pages."""
    return (
        f'<div class="wide"><svg role="img" aria-label="{escape(says)}" width="{width:.0f}" height="{height}"'
        f' font-family="ui-monospace, monospace" font-size="11">{"".join(drawings)}</svg></div>'
    )
