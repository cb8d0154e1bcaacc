"""Patterns of axes as plain rows: what `torchledger explain --json` answers."""

from __future__ import annotations

from collections.abc import Iterable
from keyword import iskeyword
from typing import Any

from torchledger.ledger import Work, total
from torchledger.ops.pattern import (
    Contraction,
    Einsum,
    Layout,
    Path,
    Roofed,
    Step,
    Transformed,
    Viewed,
    all_at_once,
    best,
    left_to_right,
    operand_of,
    with_fewer_copies,
)
from torchledger.ops.pattern.path import MOST_SEARCHED
from torchledger.ops.piece import Piece


def work_of(pieces: Iterable[Piece]) -> Work:
    """What pieces cost together."""
    return total(piece.work for piece in pieces)


def bytes_moved(pieces: Iterable[Piece]) -> int:
    """Bytes that pieces read and write."""
    moved: int = work_of(pieces).bytes_moved
    return moved


def transformed_record(answer: Transformed, roofs: Roofed | None) -> dict[str, Any]:
    """A rearrangement, a repetition or a reduction."""
    work = work_of(answer.pieces)
    return {
        "is_view": answer.is_view,
        "num_copies": len(answer.copies),
        "before": layout_record(answer.before),
        "after": layout_record(answer.after),
        "flops": work.flops_full,
        "transcendentals": work.transcendentals,
        "read_bytes": work.bytes_read,
        "written_bytes": work.bytes_written,
        "moved_bytes": work.bytes_moved,
        "contiguous_moved_bytes": bytes_moved(answer.contiguous_pieces),
        "steps": [step_record(step) for step in answer.steps],
        "torch": answer.code,
        "einops": einops_code(answer),
        "roofline": roofed_record(roofs),
    }


def viewed_record(answer: Viewed, roofs: Roofed | None) -> dict[str, Any]:
    """A tensor asked for another shape."""
    return {
        "is_view": answer.after is not None,
        "before": layout_record(answer.before),
        "wanted_shape": answer.wanted,
        "after": None if answer.after is None else layout_record(answer.after),
        "reason": answer.reason,
        "flattest_view": layout_record(answer.flattest),
        "reshape_moved_bytes": bytes_moved(answer.pieces),
        "roofline": roofed_record(roofs),
    }


def einsum_record(answer: Einsum, roofs: Roofed | None) -> dict[str, Any]:
    """A contraction."""
    work = work_of(answer.pieces)
    least = least_bytes(answer)
    return {
        "equation": answer.equation.in_letters,
        "operands": [
            {"name": name, "indices": indices, **layout_record(layout)}
            for name, indices, layout in zip(answer.names, answer.equation.operands, answer.operands, strict=True)
        ],
        "result": layout_record(answer.result),
        "flops": work.flops_full,
        "contraction_flops": answer.contraction_flops,
        "moved_bytes": work.bytes_moved,
        "copied_bytes": answer.copied_bytes,
        "with_other_letters": _renamed_record(answer),
        "least_bytes": least,
        "flops_per_byte": work.flops_full / work.bytes_moved if work.bytes_moved else None,
        "most_flops_per_byte": work.flops_full / least if least else None,
        "path": answer.path.pairs,
        "paths": paths_record(answer),
        "contractions": [contraction_record(each) for each in answer.contractions],
        "torch": answer.code,
        "roofline": roofed_record(roofs),
    }


def contraction_record(each: Contraction) -> dict[str, Any]:
    """One pair of an einsum."""
    return {
        "left": each.left,
        "right": each.right,
        "result": each.result.code,
        "result_indices": each.result.names,
        "result_layout": layout_record(each.result.layout),
        "matmul": None if each.product is None else dict(zip(("b", "m", "n", "k"), each.product, strict=True)),
        "flops": each.flops,
        "moved_bytes": bytes_moved(each.pieces),
        "copies": [
            {"operand": operand, "moved_bytes": bytes_moved(step.pieces), "reason": step.reason}
            for operand, step in each.copies
        ],
        "cuda_kernel_copies": [
            {"operand": operand, "moved_bytes": bytes_moved((piece,))} for operand, piece in each.kernel_copies
        ],
    }


def paths_record(answer: Einsum) -> dict[str, Any]:
    """The orders that there are: one loop over all indices, torch's, the best."""
    asked = (answer.equation.operands, answer.equation.output, answer.sizes)
    searched = len(answer.operands) <= MOST_SEARCHED
    return {
        "all_at_once": {"flops": all_at_once(*asked)},
        "left_to_right": _path_record(left_to_right(*asked)),
        "best": _path_record(best(*asked)) if searched else None,
    }


def _renamed_record(answer: Einsum) -> dict[str, Any] | None:
    """Letters with which torch would copy less, where there are any."""
    renamed = with_fewer_copies(answer)
    if renamed is None:
        return None
    return {"equation": renamed.equation.in_letters, "copied_bytes": renamed.copied_bytes}


def _path_record(path: Path) -> dict[str, Any]:
    return {"pairs": path.pairs, "flops": path.flops, "largest_num_elements": path.largest}


def least_bytes(answer: Einsum) -> int:
    """What is needed of the operands read once and the result written once, with all else kept inside a kernel.

    Of an operand with an index twice that is its diagonal; a result that is a view of its operand moves nothing.
    """
    if not answer.pieces:
        return 0
    order = answer.equation.indices
    needed = zip(answer.names, answer.equation.operands, answer.operands, strict=True)
    read = sum(operand_of(name, indices, layout, order).layout.num_distinct for name, indices, layout in needed)
    return answer.element_bytes * (read + answer.result.num_elements)


def layout_record(layout: Layout) -> dict[str, Any]:
    """Shape, stride, and whether they are contiguous."""
    return {"shape": layout.shape, "stride": layout.stride, "is_contiguous": layout.is_contiguous}


def step_record(step: Step) -> dict[str, Any]:
    """One call."""
    work = work_of(step.pieces)
    return {
        "call": step.code,
        "does": doing(step),
        "shape": step.after.shape,
        "stride": step.after.stride,
        "flops": work.flops_full,
        "moved_bytes": work.bytes_moved,
        "reason": step.reason,
    }


def doing(step: Step) -> str:
    """`view`, `copy`, or `reduction`."""
    return step.pieces[0].kind if step.pieces else "view"


def roofed_record(roofs: Roofed | None) -> dict[str, Any] | None:
    """Seconds under the roofs of a chip, where one was asked for."""
    if roofs is None:
        return None
    return {
        "chip": roofs.chip,
        "ridge_flops_per_byte": roofs.ridge,
        "bound": roofs.bound,
        "least_s": roofs.seconds,
        "kernels": [{"bound": each.bound, "least_s": each.seconds} for each in roofs.roofs],
    }


def einops_code(answer: Transformed) -> str:
    """The call of einops that was explained."""
    reduces = answer.operation not in {"rearrange", "repeat"}
    name = "reduce" if reduces else answer.operation
    words = ["x", f'"{answer.pattern}"', *([f'"{answer.operation}"'] if reduces else [])]
    sizes = {axis: size for axis, size in answer.sizes.items() if axis.isidentifier()}
    words.extend(f"{axis}={size}" for axis, size in sizes.items() if not iskeyword(axis))
    if reserved := {axis: size for axis, size in sizes.items() if iskeyword(axis)}:
        words.append(f"**{reserved}")
    return f"{name}({', '.join(words)})"
