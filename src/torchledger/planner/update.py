"""`update_bytes`: bytes that the optimizer's step moves for each parameter."""

from __future__ import annotations

from torchledger.spec import OptimizerSpec

#: Bytes of the optimizer's state that a step reads and writes, by kind; AdamW's two FP32 moments are 8.
_STATE = {"adamw": 8, "sgd": 0, "adafactor": 0, "lion": 4, "muon": 4, "adamw-8bit": 2}


def update_bytes(optimizer: OptimizerSpec, precision: str) -> float:
    """Bytes read and written for one parameter: gradient, weight, master copy, state; clipping reads gradients before.

    >>> update_bytes(OptimizerSpec(), "bf16-master")  # clip 4; read 4 + 4 + 8; written 4 + 8 + 2
    34
    """
    state = _STATE[optimizer.kind]
    if optimizer.kind == "sgd" and optimizer.momentum > 0:
        state = 4
    if precision == "bf16-pure":
        state //= 2
    narrow = precision not in {"fp32", "tf32", "bf16", "fp16"}
    master = (
        4 if precision in {"fp32", "tf32", "bf16", "fp16", "bf16-master", "fp16-master", "fp8", "mxfp8", "nvfp4"} else 2
    )
    gradient = 2 if precision in {"bf16-pure", "bf16-moments"} else 4
    clip = gradient if optimizer.gradient_clip > 0 else 0
    return clip + gradient + 2 * master + 2 * state + (2 if narrow and master == 4 else 0)
