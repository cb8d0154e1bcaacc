"""Which operations take a tensor as it lies, and which need it in order or copy it themselves before they begin."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import torch

from torchledger.formats import strides
from torchledger.tracer.signature import TensorMeta

Answer: TypeAlias = Literal["takes", "follows", "copies", "unknown"]

_PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "addmm_", "baddbmm_"})
_TAKING = frozenset(
    {
        "cat", "stack", "copy_", "index", "index_select", "gather", "max", "min", "amax", "amin", "argmax", "argmin",
        "linalg_vector_norm", "norm", "var_mean", "std_mean", "topk", "sort", "cumsum", "all", "any", "dot",
    }
)  # fmt: skip
#: Kernels that copy an operand which is not contiguous, on CPU and CUDA alike (`expect_contiguous` or `contiguous`
#: at their beginning), and which operands.
_IN_ORDER: dict[str, tuple[int, ...]] = {
    "native_layer_norm": (0,),
    "native_group_norm": (0,),
    "_softmax": (0,),
    "_log_softmax": (0,),
}


def answer(func: Any, position: int, meta: TensorMeta) -> Answer:
    """How an operation takes an operand that lies as `meta` says.

    Args:
        func: the operation.
        position: which of its tensors.
        meta: geometry of the operand.

    Returns:
        `takes`: reads it where it is. `follows`: as well, and its result lies in the same order. `copies`: makes it
        contiguous for itself first. `unknown`: nothing is known of it here.
    """
    op = func._schema.name.rpartition("::")[2]  # noqa: SLF001  # torch's only way to a schema
    if strides.is_contiguous(meta.shape, meta.stride):
        return "takes"
    if op in _PRODUCTS:
        return "takes" if len(meta.shape) < 2 or is_matrix(meta) else "copies"
    if op.startswith("_scaled_dot_product_") and "_backward" not in op:
        return "takes" if meta.stride and meta.stride[-1] == 1 else "unknown"
    if op in _IN_ORDER and position in _IN_ORDER[op]:
        return "copies"
    if op in {"clone", "_to_copy"} or torch.Tag.pointwise in func.tags:
        return "follows"
    if op in _TAKING or torch.Tag.reduction in func.tags:
        return "takes"
    return "unknown"


def is_matrix(meta: TensorMeta) -> bool:
    """Whether the last two dimensions lie by rows or by columns, as BLAS takes a matrix; rows may lie apart."""
    (rows, columns), (down, across) = meta.shape[-2:], meta.stride[-2:]
    by_rows = (across == 1 or columns == 1) and down >= max(1, columns)
    by_columns = (down == 1 or rows == 1) and across >= max(1, rows)
    return by_rows or by_columns


def is_flash_backward(func: Any) -> bool:
    """Whether an operation is the gradient of attention's kernel, which takes what the forward kernel took."""
    name: str = func._schema.name  # noqa: SLF001  # as above
    return "_scaled_dot_product_" in name and name.endswith("_backward")
