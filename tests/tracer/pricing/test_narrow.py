"""Products in narrow formats: what is multiplied, and in which format."""

import pytest
import torch

from torchledger.tracer.pricing import price
from torchledger.tracer.signature import Signature, TensorMeta

M, K, N = 8, 32, 16


def _meta(*shape, dtype):
    return TensorMeta(shape, (1,) * len(shape), dtype)


def _call(op, named, result):
    schema = getattr(getattr(torch.ops, op.split(".")[0]), op.split(".")[1]).default._schema
    args = tuple(named.get(argument.name) for argument in schema.arguments if not argument.kwarg_only)
    return price(Signature(f"{op}.default", args), (result,))


BF16, INT8, FP8, FP4 = torch.bfloat16, torch.int8, torch.float8_e4m3fn, torch.float4_e2m1fn_x2


@pytest.mark.parametrize(
    ("op", "left", "right", "number_format"),
    [
        ("aten._scaled_mm", (M, K, FP8), (K, N, FP8), "fp8"),
        ("aten._scaled_mm_v2", (M, K, FP8), (K, N, FP8), "fp8"),
        ("aten._scaled_mm_v2", (M, K // 2, FP4), (K // 2, N, FP4), "float4_e2m1fn_x2"),
        ("aten._int_mm", (M, K, INT8), (K, N, INT8), "int8"),
        ("aten._weight_int8pack_mm", (M, K, BF16), (N, K, INT8), "bf16"),
        ("aten._weight_int4pack_mm_for_cpu", (M, K, BF16), (N, K // 2, torch.uint8), "bf16"),
    ],
)
def test_a_product(op, left, right, number_format):
    """2·M·N·K, two numbers of 4 bits a byte; the format of what is multiplied, not of what comes out."""
    named = {"self": _meta(*left[:2], dtype=left[2]), "mat2": _meta(*right[:2], dtype=right[2])}
    priced = _call(op, named, _meta(M, N, dtype=BF16))
    assert priced.pieces[0].work.flops_full == 2 * M * N * K
    assert (priced.pieces[0].kind, priced.number_format) == ("matmul", number_format)


@pytest.mark.parametrize("op", ["linear_dynamic", "linear_relu_dynamic", "linear"])
def test_a_quantised_layer_multiplies_in_eight_bits(op):
    priced = _call(f"quantized.{op}", {"X": _meta(M, K, dtype=torch.float32)}, _meta(M, N, dtype=torch.float32))
    product, bias, *rest = priced.pieces
    assert (product.work.flops_full, bias.work.flops_full, priced.number_format) == (2 * M * N * K, M * N, "int8")
    assert len(rest) == ("relu" in op)


@pytest.mark.parametrize(
    ("left", "right", "flops"),
    [
        ((64, 32), (4, 32, 16), 2 * 64 * 32 * 16),  # rows shared out
        ((4, 16, 32), (32, 64), 2 * 16 * 32 * 64),  # columns
        ((16, 64), (64, 32), 2 * 16 * 64 * 32),  # the contracted index: a weight gradient of each group
        ((4, 16, 32), (4, 32, 16), 4 * 2 * 16 * 32 * 16),  # operands of their own
    ],
)
@pytest.mark.parametrize("op", ["_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2"])
def test_grouped_products(left, right, flops, op):
    """Whatever is shared out among the groups, each of it meets one group."""
    dtype, number_format = (BF16, "bf16") if op == "_grouped_mm" else (FP8, "fp8")
    named = {"self": _meta(*left, dtype=dtype), "mat2": _meta(*right, dtype=dtype)}
    if len(left) + len(right) < 6:
        named["offs"] = _meta(4, dtype=torch.int32)
    priced = _call(f"aten.{op}", named, _meta(*left[:-1], right[-1], dtype=BF16))
    assert (priced.pieces[0].work.flops_full, priced.number_format) == (flops, number_format)
    assert bool(priced.assumptions) == ("offs" in named)
