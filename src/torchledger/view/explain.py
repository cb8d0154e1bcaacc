"""Patterns of axes on the screen: view or copy and why, FLOPs and bytes, the code that does the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torchledger.ops.pattern import Contraction, Einsum, Layout, Roofed, Step, Transformed, Viewed, with_fewer_copies
from torchledger.units import format_bytes, format_duration, format_flops, format_number, group_digits
from torchledger.view.explain_record import (
    bytes_moved,
    doing,
    einops_code,
    least_bytes,
    paths_record,
    work_of,
)
from torchledger.view.screen import Block, Facts, Lines, Row, Screen, Table, assumed


def transformed_screen(answer: Transformed, roofs: Roofed | None, assumptions: Sequence[str]) -> Screen:
    """A rearrangement, a repetition or a reduction."""
    after = answer.contiguous_pieces
    facts = [
        ("before", _placed(answer.before, answer.element_bytes)),
        ("after", _placed(answer.after, answer.result_element_bytes)),
        ("einops", einops_code(answer)),
        ("torch", answer.code),
        (".contiguous() after it", f"copies: {_moved(after)}" if after else "has nothing to do"),
        *_roof_facts(roofs),
    ]
    return (
        Lines((_transformed_headline(answer),), mark="headline"),
        Facts(tuple(facts)),
        *_steps(answer.steps),
        *_reasons([(step.code, step.reason) for step in answer.copies]),
        *assumed(assumptions),
    )


def viewed_screen(answer: Viewed, roofs: Roofed | None, assumptions: Sequence[str]) -> Screen:
    """A tensor asked for another shape."""
    shape = ", ".join(map(str, answer.wanted)) or "()"
    before = ("tensor", _placed(answer.before, answer.element_bytes))
    if answer.after is not None:
        headline = Lines((f"{answer.wanted} is a view: no byte moves",), mark="headline")
        view = ("view", _placed(answer.after, answer.element_bytes))
        return (headline, Facts((before, view, ("torch", f"x.view({shape})"))), *assumed(assumptions))
    facts = (
        before,
        ("why", answer.reason),
        ("what works", f"x.reshape({shape}), a copy: {_moved(answer.pieces)}"),
        ("flattest view", _placed(answer.flattest, answer.element_bytes)),
        *_roof_facts(roofs),
    )
    headline = Lines((f"view({shape}) fails: this tensor has that shape only as a copy",), mark="headline")
    return (headline, Facts(facts), *assumed(assumptions))


def einsum_screen(answer: Einsum, roofs: Roofed | None, assumptions: Sequence[str]) -> Screen:
    """A contraction."""
    work = work_of(answer.pieces)
    least = least_bytes(answer)
    operands = zip(answer.names, answer.equation.operands, answer.operands, strict=True)
    facts = [
        ("equation", answer.equation.in_letters),
        *((name, f"[{' '.join(indices)}] {_placed(each, answer.element_bytes)}") for name, indices, each in operands),
        ("result", f"[{' '.join(answer.equation.output)}] {_placed(answer.result, answer.element_bytes)}"),
        ("FLOPs", _flops(answer)),
        ("bytes moved", f"{format_bytes(work.bytes_moved)}, {_share_of_copies(answer)}"),
        *([("at the least", f"{format_bytes(least)}: operands read once, the result written once")] if least else []),
        ("intensity", _intensity(work.flops_full, work.bytes_moved, least)),
        *(("matmul", _product(each)) for each in answer.contractions[:1] if len(answer.contractions) == 1),
        ("torch", "\n".join(answer.code)),
        *_renamed(answer),
        *_roof_facts(roofs),
    ]
    reasons = [(f"operand {operand}", step.reason) for each in answer.contractions for operand, step in each.copies]
    return (
        Lines((_einsum_headline(answer, roofs),), mark="headline"),
        Facts(tuple(facts)),
        *_contractions(answer),
        *_paths(answer),
        *_reasons(reasons),
        *_kernel_copies(answer),
        *assumed(assumptions),
    )


def _transformed_headline(answer: Transformed) -> str:
    if answer.is_view:
        return f"{answer.operation} is a view: no byte moves"
    work = work_of(answer.pieces)
    copied = [piece for step in answer.copies for piece in step.pieces]
    if not work.flops_full and not work.transcendentals and len(copied) == len(answer.pieces):
        return f"{answer.operation} copies: {_moved(answer.pieces)}"
    extra = f", {_moved(copied)} of it in a copy" if copied else ", without a copy"
    return f"{answer.operation}: {format_flops(work.flops_full)}, {format_bytes(work.bytes_moved)} moved{extra}"


def _einsum_headline(answer: Einsum, roofs: Roofed | None) -> str:
    work = work_of(answer.pieces)
    if not work.flops_full and not work.bytes_moved:
        return "a view: no byte moves"
    text = f"{format_flops(work.flops_full)}, {format_bytes(work.bytes_moved)} moved"
    return text if roofs is None else f"{text}: {_bound(roofs)}"


def _flops(answer: Einsum) -> str:
    work = work_of(answer.pieces)
    other = work.flops_full - answer.contraction_flops
    matmul = f"{group_digits(answer.contraction_flops)} in matrix products"
    return f"{matmul}, {group_digits(other)} in sums and products by element" if other else matmul


def _share_of_copies(answer: Einsum) -> str:
    return f"{format_bytes(answer.copied_bytes) if answer.copied_bytes else 'none'} of it in copies"


def _renamed(answer: Einsum) -> Iterator[tuple[str, str]]:
    """Letters with which torch copies less."""
    renamed = with_fewer_copies(answer)
    if renamed is not None:
        equation, copied = renamed.equation.in_letters, renamed.copied_bytes
        left = f"copies {format_bytes(copied)}" if copied else "copies nothing"
        yield "other letters", f"{equation} {left}: torch sums in the order of the alphabet"


def _intensity(flops: int, moved: int, least: int) -> str:
    if not moved:
        return "nothing is moved"
    return f"{format_number(flops / moved)} FLOP a byte as run, {format_number(flops / least)} at the least bytes"


def _product(each: Contraction) -> str:
    if each.product is None:
        return "none: a product element by element"
    B, M, N, K = each.product
    times = "" if B == 1 else f"{group_digits(B)} times "
    return (
        f"{times}[{group_digits(M)}, {group_digits(K)}] @ [{group_digits(K)}, {group_digits(N)}],"
        f" 2·{'' if B == 1 else f'{B}·'}{M}·{N}·{K} FLOPs"
    )


def _contractions(answer: Einsum) -> Iterator[Block]:
    if len(answer.contractions) < 2:
        return
    columns = ("<result", "<operands", "<indices", "<matmul b·m·n·k", "FLOPs", "bytes moved", "in copies")
    rows = (
        Row(
            (
                each.result.code,
                f"{each.left}, {each.right}",
                " ".join(each.result.names),
                "none" if each.product is None else "·".join(map(str, each.product)),
                format_flops(each.flops),
                format_bytes(bytes_moved(each.pieces)),
                format_bytes(bytes_moved(piece for _, step in each.copies for piece in step.pieces)),
            )
        )
        for each in answer.contractions
    )
    yield Table(columns, tuple(rows), "pair by pair")


def _paths(answer: Einsum) -> Iterator[Block]:
    """The orders beside each other, where there is a choice."""
    if len(answer.operands) < 3:
        return
    paths = paths_record(answer)
    names = {"all_at_once": "one loop over all indices", "left_to_right": "left to right", "best": "best"}
    rows = []
    for key, name in names.items():
        path = paths[key]
        if path is not None:
            pairs = " ".join(f"({first}, {second})" for first, second in path.get("pairs", ()))
            largest = path.get("largest_num_elements")
            held = "none" if largest is None else format_bytes(largest * answer.element_bytes)
            rows.append(Row((name, pairs, group_digits(path["flops"]), held)))
    columns = ("<order", "<pairs, results at the end", "FLOPs", "largest result")
    yield Table(columns, tuple(rows), "orders", "torch.einsum goes left to right unless opt_einsum is installed")


def _kernel_copies(answer: Einsum) -> Iterator[Block]:
    moved = [(operand, piece) for each in answer.contractions for operand, piece in each.kernel_copies]
    if moved:
        lines = tuple(
            f"operand {operand}: neither of its last strides suits BLAS; {_moved((piece,))} more"
            for operand, piece in moved
        )
        yield Lines(lines, "copied once more before the kernel, on CUDA")


def _steps(steps: Sequence[Step]) -> Iterator[Block]:
    if steps:
        rows = (
            Row((step.code, doing(step), _tuple(step.after.shape), _tuple(step.after.stride), _cell(step)))
            for step in steps
        )
        yield Table(("<call", "<does", "<shape", "<stride", "bytes moved"), tuple(rows), "step by step")


def _cell(step: Step) -> str:
    return format_bytes(bytes_moved(step.pieces)) if step.pieces else "0"


def _reasons(reasons: Sequence[tuple[str, str]]) -> Iterator[Block]:
    if reasons:
        yield Lines(tuple(f"{place.lstrip('.')}: {reason}" for place, reason in reasons), "why it copies")


def _roof_facts(roofs: Roofed | None) -> Iterator[tuple[str, str]]:
    if roofs is not None:
        yield f"on {roofs.chip}", _bound(roofs)


def _bound(roofs: Roofed) -> str:
    if roofs.seconds is None:
        return f"unknown: {roofs.chip} has no known bandwidth"
    if not roofs.roofs:
        return "takes no time: nothing is moved"
    ridge = "" if roofs.ridge is None else f" (ridge at {format_number(roofs.ridge)} FLOP a byte)"
    return f"{roofs.bound}-bound{ridge}, {format_duration(roofs.seconds)} at the least"


def _placed(layout: Layout, element_bytes: int) -> str:
    lies = "contiguous" if layout.is_contiguous else "not contiguous"
    if layout.num_distinct < layout.num_elements:
        distinct = layout.num_distinct
        lies += f", {group_digits(distinct)} element{'' if distinct == 1 else 's'} of storage"
    held = format_bytes(layout.num_elements * element_bytes)
    return f"{_tuple(layout.shape)} stride {_tuple(layout.stride)}: {held}, {lies}"


def _moved(pieces: Sequence[Any]) -> str:
    work = work_of(pieces)
    return f"{format_bytes(work.bytes_read)} read and {format_bytes(work.bytes_written)} written"


def _tuple(numbers: Sequence[int]) -> str:
    return str(tuple(numbers))
