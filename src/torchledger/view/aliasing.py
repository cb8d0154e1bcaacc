"""A tensor in its storage, drawn: one box an element where they are few, the stretch it lies in where they are many."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from torchledger.formats.strides import address
from torchledger.ledger import display
from torchledger.ledger.aliasing import Aliasing, ViewAnswer
from torchledger.units import format_bytes, group_digits
from torchledger.view.markup import fragment
from torchledger.view.screen import Block, Facts, Lines, table
from torchledger.view.terminal import draw

_FEW = 96  # elements of a storage that are drawn one by one
_IN_A_LINE = 12
_WIDTH = 64
_SHOWN_INDICES = 3


def aliasing_screen(found: Aliasing) -> tuple[Block, ...]:
    """A tensor's place in its storage: figures, the arithmetic, the storage drawn, who shares it, what views work."""
    return (
        Lines((f"{found.name}: {_headline(found)}",), mark="headline"),
        Facts(tuple(_figures(found))),
        Lines(tuple(_examples(found)), "where element (i, j, ...) lies", "code"),
        Lines(tuple(_drawn(found)), "the storage", "code"),
        *_shared(found),
        *(block for answer in found.views for block in _answered(found, answer)),
    )


def aliasing_text(found: Aliasing) -> str:
    """The screen as plain text."""
    return draw(aliasing_screen(found)).rstrip("\n")


def aliasing_html(found: Aliasing) -> str:
    """The screen as HTML, without script."""
    return f'<div class="torchledger">{fragment(aliasing_screen(found))}</div>'


def register() -> None:
    """Tell it how it looks."""
    display.register(Aliasing, "text", aliasing_text)
    display.register(Aliasing, "html", aliasing_html)


def _headline(found: Aliasing) -> str:
    if found.overlaps:
        return "overlaps itself: some elements are one in memory, and writing one writes the others"
    if found.is_contiguous:
        return "contiguous: in row-major order, without gaps"
    if found.is_dense:
        return "without gaps, and not in row-major order: dimensions were swapped"
    return "not contiguous: it leaves elements of the storage out"


def _figures(found: Aliasing) -> Iterator[tuple[str, str]]:
    first, end = found.reach
    yield "shape", _tuple(found.shape)
    yield "stride", _tuple(found.stride)
    yield "offset", group_digits(found.offset)
    yield "number format", f"{found.number_format}, {found.element_bytes} bytes an element"
    yield "elements", f"{found.num_elements:,} ({format_bytes(found.num_elements * found.element_bytes)})"
    if found.num_distinct != found.num_elements:
        yield "of these distinct", "too many to count" if found.num_distinct is None else f"{found.num_distinct:,}"
    yield "storage", format_bytes(found.storage_bytes)
    yield "lies in elements", f"{first:,} to {end - 1:,}" if end > first else "none"


def _examples(found: Aliasing) -> Iterator[str]:
    yield found.arithmetic
    if 0 in found.shape:
        return
    last = tuple(size - 1 for size in found.shape)
    chosen = itertools.islice(itertools.product(*(range(size) for size in found.shape)), _SHOWN_INDICES)
    for index in dict.fromkeys((*chosen, last)):
        terms = [
            str(found.offset),
            *(f"{i}·{step}" for i, step in zip(index, found.stride, strict=True)),
        ]
        place = address(index, found.stride, found.offset)
        yield f"{found.name}{list(index)} = storage[{' + '.join(terms)}] = storage[{place}]"


def _drawn(found: Aliasing) -> Iterator[str]:
    count = found.storage_bytes // found.element_bytes
    if 0 < count <= _FEW and found.num_elements <= _FEW:
        yield from _boxes(found, count)
        return
    first, end = found.reach
    begin = min(_WIDTH - 1, first * _WIDTH // max(count, 1))
    stop = max(begin + 1, -(-end * _WIDTH // max(count, 1))) if end > first else begin
    yield f"[{'.' * begin}{'#' * (stop - begin)}{'.' * (_WIDTH - stop)}]  {count:,} elements; # is where it lies"


def _boxes(found: Aliasing, count: int) -> Iterator[str]:
    """Every element of the storage with the indices that are it."""
    names: dict[int, list[str]] = {}
    for index in itertools.product(*(range(size) for size in found.shape)):
        names.setdefault(address(index, found.stride, found.offset), []).append(",".join(map(str, index)) or "x")
    cells = [_cell(names.get(place, [])) for place in range(count)]
    width = max(len(cell) for cell in cells)
    for begin in range(0, count, _IN_A_LINE):
        line = " ".join(cell.center(width) for cell in cells[begin : begin + _IN_A_LINE])
        yield f"{begin:>4} | {line}"
    yield "each place with the index of its element; . is no element of this tensor, (n) are n indices in one place"


def _cell(names: list[str]) -> str:
    if not names:
        return "."
    return names[0] if len(names) == 1 else f"{names[0]}({len(names)})"


def _shared(found: Aliasing) -> tuple[Block, ...]:
    if not found.shared_with:
        return ()
    rows = (
        (
            each.name,
            _tuple(each.shape),
            _tuple(each.stride),
            group_digits(each.offset),
            each.number_format,
            format_bytes(each.num_shared_bytes),
        )
        for each in found.shared_with
    )
    columns = ("<tensor", "<shape", "<stride", "offset", "<format", "shared stretch")
    return (table(columns, rows, title="shares its storage with"),)


def _answered(found: Aliasing, answer: ViewAnswer) -> tuple[Block, ...]:
    asked = f"{found.name}.view({', '.join(map(str, answer.shape))})"
    if answer.stride is not None:
        return (Lines((f"works, with stride {_tuple(answer.stride)}, and copies nothing",), asked),)
    return (
        Lines((f"fails: {answer.why}",), asked, "warning"),
        Lines(tuple(line.replace("x.", f"{found.name}.", 1) for line in answer.instead), "what works", "code"),
    )


def _tuple(sizes: tuple[int, ...]) -> str:
    return f"({', '.join(f'{size:,}'.replace(',', '_') for size in sizes)})"
