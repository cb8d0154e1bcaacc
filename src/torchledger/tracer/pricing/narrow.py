"""Prices of products in narrow formats: scaled fp8 and fp4, integers, weights of a few bits, dynamic quantisation."""

from __future__ import annotations

from torchledger import ops
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Seen, price_of, size_of
from torchledger.tracer.signature import TensorMeta

_TWO_A_BYTE = "float4_e2m1fn_x2"


@price_of("_scaled_mm", "_scaled_mm_v2", "_int_mm")
def scaled_product(seen: Seen) -> tuple[Piece, ...]:
    """[m, k] @ [k, n] of narrow numbers, scaled and, where there is one, with a bias."""
    left, right = seen.tensor("self"), seen.tensor("mat2")
    m, n = left.shape[0], right.shape[1]
    k = left.shape[1] * _packed(left)
    pieces = ops.matmul(1, m, n, k, element_bytes=left.dtype.itemsize)
    if seen.op != "_int_mm":
        pieces += ops.pointwise("scale", m * n, element_bytes=0)
    return pieces + (ops.bias_add(m, n) if seen.optional("bias") is not None else ())


@price_of(
    "_weight_int8pack_mm", "_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu", "_dyn_quant_matmul_4bit",
    "_weight_int4pack_mm_with_scales_and_zeros", "_mixed_dtypes_linear",
)  # fmt: skip
def product_with_packed_weight(seen: Seen) -> tuple[Piece, ...]:
    """Product x W with W unpacked and scaled inside the kernel: it computes in x's format."""
    x = next(meta for name in ("self", "inp", "input") if (meta := seen.optional(name)) is not None)
    m, k = size_of(x.shape[:-1]), x.shape[-1]
    n = seen.results[0].shape[-1]
    pieces = ops.matmul(1, m, n, k, element_bytes=x.dtype.itemsize)
    return pieces + (ops.bias_add(m, n) if seen.optional("bias") is not None else ())


@price_of(
    "quantized::linear", "quantized::linear_relu", "quantized::linear_dynamic", "quantized::linear_relu_dynamic",
    "quantized::linear_dynamic_fp16", "quantized::linear_relu_dynamic_fp16", "fbgemm_linear_int8_weight",
    "fbgemm_linear_int8_weight_fp32_activation", "fbgemm_linear_fp16_weight", "_wrapped_quantized_linear_prepacked",
    "fbgemm_linear_fp16_weight_fp32_activation", "quantized::linear_with_input_q_dq_qweight_dq_output_fp32",
    "onednn::qlinear_pointwise",
)  # fmt: skip
def quantized_linear(seen: Seen) -> tuple[Piece, ...]:
    """Product x Wᵀ + b on quantised operands; x is quantised on the way in where it was not, W was packed before."""
    x = next(meta for name in ("X", "input", "qx") if (meta := seen.optional(name)) is not None)
    tokens, inputs = size_of(x.shape[:-1]), x.shape[-1]
    outputs = seen.num_results // max(tokens, 1)
    pieces = ops.linear(tokens, inputs, outputs, bias=True, element_bytes=1)
    return pieces + (ops.pointwise("relu", tokens * outputs) if "relu" in seen.op else ())


@price_of("_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2")
def grouped_product(seen: Seen) -> tuple[Piece, ...]:
    """A product a group, the groups being shares of one dimension that offsets mark.

    Rows shared out ([m, k] @ [groups, k, n]) cost 2·m·n·k however they are shared out, and so does a shared contracted
    index ([m, k] @ [k, n], a weight gradient) and shared columns. Without offsets every group has operands of its own.
    """
    left, right = seen.tensor("self"), seen.tensor("mat2")
    k = left.shape[-1] * _packed(left)
    m, n = left.shape[-2], right.shape[-1]
    size = left.dtype.itemsize
    if len(left.shape) == len(right.shape) == 3:
        return ops.matmul(left.shape[0], m, n, k, element_bytes=size, op="grouped_matmul")
    offsets = seen.optional("offs")
    groups = right.shape[0] if len(right.shape) == 3 else left.shape[0] if len(left.shape) == 3 else 0
    if not groups:
        groups = offsets.shape[0] if offsets is not None else 1
    seen.assumptions.append(
        "grouped products: every row belongs to a group (their offsets are data); how rows are shared out among groups "
        "changes no count"
    )
    pieces = ops.grouped_matmul(groups, m, n, k, element_bytes=size)
    return pieces + (ops.bias_add(m, n) if seen.optional("bias") is not None else ())


#: Operation -> the format that it computes in, where its operands do not tell.
FORMATS: dict[str, str] = {
    **dict.fromkeys(
        ("linear", "linear_relu", "linear_dynamic", "linear_relu_dynamic", "qlinear_pointwise",
         "linear_with_input_q_dq_qweight_dq_output_fp32"), "int8",
    ),
    **dict.fromkeys(("linear_dynamic_fp16", "linear_relu_dynamic_fp16"), "fp16"),
    **dict.fromkeys(("fbgemm_linear_fp16_weight", "fbgemm_linear_fp16_weight_fp32_activation"), "fp16"),
    **dict.fromkeys(("fbgemm_linear_int8_weight", "fbgemm_linear_int8_weight_fp32_activation"), "int8"),
    "_wrapped_quantized_linear_prepacked": "int8",
}  # fmt: skip
#: Operations that compute in their first operand's format, whatever they return.
IN_FIRST_FORMAT = frozenset(
    {"_scaled_mm", "_scaled_mm_v2", "_int_mm", "_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2"}
)


def _packed(meta: TensorMeta) -> int:
    """Numbers in one element of a tensor."""
    return 2 if str(meta.dtype).endswith(_TWO_A_BYTE) else 1
