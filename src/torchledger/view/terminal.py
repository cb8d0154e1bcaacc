"""Screens as terminal text: plain and aligned in a pipe, with rich on a terminal, in ASCII where nothing else works."""

from __future__ import annotations

from collections.abc import Iterator

from torchledger.view.layout import lay_out
from torchledger.view.screen import Bars, Block, Facts, Lines, Screen, Table
from torchledger.view.style import PLAIN, Style, shown, to_ascii

_EIGHTHS = " ▏▎▍▌▋▊▉█"
BAR_WIDTH = 34


def draw(screen: Screen, style: Style = PLAIN) -> str:
    """The screen as text that ends with a newline."""
    if style.rich:
        from torchledger.view.pretty import draw_pretty

        text = draw_pretty(screen, style)
    else:
        text = shown("\n\n".join("\n".join(_plain(block)) for block in screen)) + "\n"
    return text if style.unicode else to_ascii(text)


def bar(share: float, width: int = BAR_WIDTH) -> str:
    """A bar of block signs, filled to `share` of its width in eighths of a sign.

    >>> bar(0.5, 4), bar(0.3, 4), bar(2, 4)
    ('██░░', '█▎░░', '████')
    """
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(width, "░")


def _plain(block: Block) -> Iterator[str]:
    if block.title:
        yield block.title
    match block:
        case Table():
            yield from _plain_table(block)
        case Bars():
            yield from _plain_bars(block)
        case Facts():
            width = max((len(name) for name, _ in block.pairs), default=0)
            for name, value in block.pairs:
                first, *rest = value.split("\n")
                yield f"{name.ljust(width)}  {first}".rstrip()
                yield from (" " * (width + 2) + line for line in rest)
        case Lines():
            indent = "  " if block.title else ""
            yield from (indent + line for line in block.lines)


def _plain_table(table: Table) -> Iterator[str]:
    lines, _ = lay_out(table)
    yield from (line.text for line in lines)
    if table.note:
        yield table.note


def _plain_bars(bars: Bars) -> Iterator[str]:
    labels = max((len(each.label) for each in bars.bars), default=0)
    for each in bars.bars:
        yield f"{each.label.ljust(labels)}  {bar(each.share)}  {each.text}".rstrip()
    if bars.note:
        yield bars.note
