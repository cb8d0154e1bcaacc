"""Rules of PyTorch 2.13's aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and sdp_utils_cpp.h."""

import pytest
import torch

from torchledger.tracer.targets.cuda.attention_choice import (
    KERNELS,
    AttentionCall,
    AttentionRefused,
    choose,
    default_order,
)

A100, A10, H100, T4, V100, RTX_5090 = (8, 0), (8, 6), (9, 0), (7, 5), (7, 0), (12, 0)
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def _call(chip=A100, dtype=BF16, *, size=64, value_size=None, keys=32, key_heads=4, mask=None, **facts):
    def empty(heads, tokens, width):
        return torch.empty(2, heads, tokens, width, dtype=dtype, device="meta")

    plain = {"dropout": 0.0, "is_causal": False, "enable_gqa": False, "trains": True}
    return AttentionCall(
        query=empty(4, 32, size),
        key=empty(key_heads, keys, size),
        value=empty(key_heads, keys, value_size or size),
        mask=mask,
        capability=chip,
        **{**plain, **facts},
    )


def _chosen(call, *, allowed=KERNELS):
    return choose(call, order=default_order(call.capability), allowed=frozenset(allowed))


@pytest.mark.parametrize(
    ("facts", "kernel"),
    [
        ({}, "flash"),
        ({"dtype": FP16, "is_causal": True}, "flash"),
        ({"dtype": FP32}, "efficient"),  # flash takes halves only
        ({"dtype": torch.float64}, "math"),
        ({"mask": torch.empty(32, 32, dtype=BF16, device="meta")}, "efficient"),
        ({"is_causal": True, "keys": 64}, "efficient"),  # the corner of the mask
        ({"size": 256}, "flash"),
        ({"size": 264}, "efficient"),
        ({"size": 260}, "math"),  # 260 is no multiple of 8, the alignment of halves
        ({"size": 60}, "flash"),  # padded to 64
        ({"value_size": 32}, "efficient"),  # flash takes one head size
        ({"key_heads": 2, "enable_gqa": True}, "flash"),
        ({"key_heads": 2, "enable_gqa": True, "dtype": FP32}, "math"),
        ({"key_heads": 3, "enable_gqa": True}, "math"),
        ({"chip": T4, "dtype": FP16}, "efficient"),  # flash needs Ampere
        ({"chip": T4, "dtype": BF16}, "math"),
        ({"chip": V100, "dtype": FP16}, "efficient"),
        ({"chip": A10, "size": 200}, "efficient"),  # flash's backward does not fit heads of 193 to 224 there
        ({"chip": A10, "size": 256}, "flash"),
        ({"chip": A10, "size": 256, "dropout": 0.5}, "efficient"),
        ({"chip": A10, "size": 200, "trains": False}, "flash"),
        ({"chip": RTX_5090, "size": 200}, "efficient"),
        ({"chip": H100}, "cudnn"),
        ({"chip": H100, "dropout": 0.25}, "cudnn"),
        ({"chip": H100, "dropout": 0.1}, "flash"),  # cuDNN's dropout is a multiple of 1/16
        ({"chip": H100, "size": 160}, "flash"),  # cuDNN's heads are 128 wide at most
        ({"chip": H100, "size": 60}, "flash"),  # and multiples of 8
        ({"chip": H100, "size": 192, "value_size": 128}, "cudnn"),  # but latent attention's
        ({"chip": H100, "dtype": FP32}, "efficient"),
        ({"chip": H100, "mask": torch.empty(2, 1, 32, 32, dtype=BF16, device="meta")}, "cudnn"),
        ({"chip": H100, "mask": torch.empty(3, 32, 32, dtype=BF16, device="meta")}, "efficient"),
    ],
)
def test_the_kernel_that_cuda_chooses(facts, kernel):
    """By format, head sizes, mask, corner, groups of heads, chip, training and dropout, the first that can run."""
    assert _chosen(_call(**facts)) == kernel


def test_what_is_switched_off_is_not_chosen():
    """Inside `sdpa_kernel(...)` only the kernels that it names are tried."""
    assert _chosen(_call(), allowed=("efficient", "math")) == "efficient"
    assert _chosen(_call(), allowed=("math",)) == "math"


def test_no_kernel_says_why():
    """Where nothing allowed can run, every kernel's reason is told."""
    with pytest.raises(AttentionRefused, match=r"flash: it takes operands of one format out of float16, bfloat16"):
        _chosen(_call(dtype=FP32), allowed=("flash",))


def test_a_last_dimension_that_is_not_dense():
    """The fused kernels take a last dimension of stride 1 only."""
    call = _call()
    turned = torch.empty(2, 4, 64, 32, dtype=BF16, device="meta").transpose(2, 3)
    transposed = AttentionCall(turned, call.key, call.value, None, 0.0, False, False, A100, trains=True)
    assert _chosen(transposed) == "math"
