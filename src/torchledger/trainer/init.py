"""Initial values of the parameters: how large, and drawn from a stream that nothing else touches."""

import math
from typing import Literal

import torch
from torch import nn

from torchledger.trainer.model import Transformer
from torchledger.trainer.seeds import stream_seed

__all__ = ["initialize", "standard_deviations"]

Initialization = Literal["fan_in", "gpt2"]

TRUNCATION = 3.0  # in standard deviations of the parameter at hand
GPT2_STD = 0.02  # Radford et al. 2019, section 2.3, and the released code
TIED_LOGIT_STD = 0.25  # adds 0.25²/2 = 0.03 nats to the loss at step 0
# A model of 5.4M parameters on Python's standard library, 150 steps: validation loss 5.95 nats with 1, 5.48 with 0.1.
POSITION_SHARE = 0.1


def standard_deviations(model: Transformer, initialization: Initialization) -> dict[str, float]:
    """Standard deviation of each parameter before truncation; 0 for those that begin constant (norms and biases).

    `fan_in`: a matrix [out, in] has 1/sqrt(in), so that its output is as large as its input (LeCun et al. 1998,
    "Efficient BackProp", section 4.6). Two exceptions keep the loss at step 0 at ln(vocabulary): logits of standard
    deviation s have a loss of about ln(vocabulary) + s²/2, and the head reads a normalized input of size 1, so

    - an untied head has 1/in (the readout of muP, Yang et al., arXiv:2203.03466, table 8): s = 1/sqrt(in);
    - a tied one is an embedding of 0.25/sqrt(in): s = 0.25.

    An untied embedding has 1: looking up is a matrix product with a one-hot row, whose fan-in is 1. Learned positions
    have a tenth of the embedding they are added to, so that what a token is outweighs where it stands.

    `gpt2`: 0.02, and 0.02/sqrt(2·num_layers) for the two matrices of each layer that write to the residual stream.
    """
    spec = model.spec
    if initialization == "gpt2":
        residual = GPT2_STD / math.sqrt(2 * spec.num_layers)
        return {
            name: (residual if _kind(name) == "residual" else GPT2_STD) if _is_drawn(name, parameter) else 0.0
            for name, parameter in model.named_parameters()
        }
    width = spec.embedding_size or spec.hidden_size
    table = TIED_LOGIT_STD / math.sqrt(width) if spec.tied_embeddings else 1.0
    table_kinds = {"embedding": table, "position": POSITION_SHARE * table, "head": 1 / width}
    return {
        name: table_kinds.get(_kind(name), 1 / math.sqrt(parameter.shape[-1])) if _is_drawn(name, parameter) else 0.0
        for name, parameter in model.named_parameters()
    }


@torch.no_grad()
def initialize(model: Transformer, initialization: Initialization, seed: int) -> None:
    """Give every parameter its initial values, in place.

    Matrices are normal, cut at ±3 of their own standard deviation (of an absolute ±3 nothing would ever be cut). Norms
    are one (zero where the weight is stored as an offset from one), biases are zero. The values of a parameter depend
    on the seed and its name only: not on the order of the modules, the device, or the number of threads.
    """
    spreads = standard_deviations(model, initialization)
    for name, parameter in model.named_parameters():
        std = spreads[name]
        if std == 0:
            is_norm_weight = name.endswith("norm.weight") and not model.spec.norm.unit_offset
            parameter.fill_(1.0 if is_norm_weight else 0.0)
            continue
        values = torch.empty(parameter.shape, dtype=torch.float32, device="cpu")
        generator = torch.Generator("cpu").manual_seed(stream_seed(seed, "initialization", name))
        nn.init.trunc_normal_(values, 0.0, std, -TRUNCATION * std, TRUNCATION * std, generator=generator)
        _put(parameter, values)


def _put(parameter: torch.Tensor, values: torch.Tensor) -> None:
    """Copy whole values into a parameter, or this rank's share of them where it holds a share."""
    placements = getattr(parameter, "placements", None)
    if placements is None:
        parameter.copy_(values)
        return
    from torch.distributed.tensor import distribute_tensor  # only many ranks have such parameters

    mesh = parameter.device_mesh  # type: ignore[attr-defined]
    shares = distribute_tensor(values.to(mesh.device_type), mesh, placements, src_data_rank=None)
    parameter.copy_(shares)


def _is_drawn(name: str, parameter: torch.Tensor) -> bool:
    """Whether it does not begin constant: a matrix, but for B of an adapter, which begins as if it were not there."""
    return parameter.ndim == 2 and not name.endswith(".lora_b.weight")


def _kind(name: str) -> str:
    """What a matrix is for, where that decides its spread."""
    tables = {"embedding.weight": "embedding", "position_embedding.weight": "position", "head.weight": "head"}
    if name in tables:
        return tables[name]
    return "residual" if name.endswith(("attention.output.weight", ".down.weight")) else "other"
