"""Initial values of the parameters: how large, and drawn from a stream that nothing else touches."""

import math
from collections.abc import Collection
from typing import Literal

import torch

from torchledger.formula.moments import draw_pieces, largest_draw
from torchledger.spec import Recipe
from torchledger.trainer.in_shares import put
from torchledger.trainer.model import Transformer
from torchledger.trainer.seeds import stream_seed

__all__ = ["Initialization", "initialize", "learning_rate_scales", "rehearse", "standard_deviations"]

Initialization = Literal["fan_in", "gpt2", "xavier", "kaiming", "mup"]

TRUNCATION = 3.0  # in standard deviations of the parameter at hand
GPT2_STD = 0.02  # Radford et al. 2019, section 2.3, and the released code
TIED_LOGIT_STD = 0.25  # adds 0.25²/2 = 0.03 nats to the loss at step 0
# A model of 5.4M parameters on Python's standard library, 150 steps: validation loss 5.95 nats with 1, 5.48 with 0.1.
POSITION_SHARE = 0.1


def standard_deviations(
    model: Transformer, initialization: Initialization, base_size: int | None = None
) -> dict[str, float]:
    """Standard deviation of each parameter before truncation; 0 for those that begin constant (norms and biases).

    `fan_in`: a matrix [out, in] has 1/sqrt(in), so that its output is as large as its input (LeCun et al. 1998,
    "Efficient BackProp", section 4.6). Two exceptions keep the loss at step 0 at ln(vocabulary): logits of standard
    deviation s have a loss of about ln(vocabulary) + s²/2, and the head reads a normalized input of size 1, so

    - an untied head has 1/in (the readout of muP, Yang et al., arXiv:2203.03466, table 3): s = 1/sqrt(in);
    - a tied one is an embedding of 0.25/sqrt(in): s = 0.25.

    An untied embedding has 1: looking up is a matrix product with a one-hot row, whose fan-in is 1. Learned positions
    have a tenth of the embedding they are added to, so that what a token is outweighs where it stands.

    `xavier`: sqrt(2/(in + out)) (Glorot and Bengio 2010, eq. 12), and `kaiming`: sqrt(2/in) (He et al.,
    arXiv:1502.01852, eq. 10), for the matrices of the layers; embedding, positions and head are as with `fan_in`,
    because both papers' arguments are about layers between others, and a head of sqrt(2/in) alone begins a whole nat
    above ln(vocabulary).

    `mup`: as `fan_in`, whose variances 1/in inside and 1/in² at the head are table 3's already. What has few outputs
    however wide the model is (a router, the gate of a shared expert) is an output weight too: sqrt(base)/in, which is
    1/sqrt(in) at the base size. The rest of muP are the learning rates (`learning_rate_scales`).

    `gpt2`: 0.02, and 0.02/sqrt(2·num_layers) for the two matrices of each layer that write to the residual stream.

    Args:
        model: whose parameters they are.
        initialization: which of the rules.
        base_size: hidden size at which `mup` changes nothing; nothing is the model's own.
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
    stds = {"embedding": table, "position": POSITION_SHARE * table, "head": 1 / width}
    if initialization == "mup":
        stds["few"] = math.sqrt(base_size or spec.hidden_size) / spec.hidden_size
    return {
        name: stds.get(_kind(name), _inside(parameter, initialization)) if _is_drawn(name, parameter) else 0.0
        for name, parameter in model.named_parameters()
    }


def _inside(matrix: torch.Tensor, initialization: Initialization) -> float:
    """Standard deviation of a matrix [out, in] of a layer."""
    fan_out, fan_in = matrix.shape
    variance = {"xavier": 2 / (fan_in + fan_out), "kaiming": 2 / fan_in}.get(initialization, 1 / fan_in)
    return math.sqrt(variance)


def learning_rate_scales(model: Transformer, recipe: Recipe) -> dict[str, float]:
    """What the learning rate of each parameter is multiplied with: 1, but for `mup` at another width than its base.

    muP (Yang et al., arXiv:2203.03466, table 3), with r = hidden_size / mup_base_size: an update changes every
    activation by as much at any width, so that a learning rate found on a narrow model serves a wide one.

    ================================  ==================  ====
    parameters                        Adam, and its kin   SGD
    ================================  ==================  ====
    embedding, positions, vectors     1                   r
    matrices of the layers            1/r                 1
    head, routers, gates              1/r                 1/r
    ================================  ==================  ====

    The paper's third part, scores divided by the head's size and not its root, is `attention.scale`: with a head size
    that stays as the model widens, the two differ by a constant.

    Args:
        model: whose parameters they are; values are not read.
        recipe: initialisation and optimizer.
    """
    names = [name for name, _ in model.named_parameters()]
    if recipe.initialization != "mup":
        return dict.fromkeys(names, 1.0)
    r = model.spec.hidden_size / recipe.mup_base_size
    sgd = recipe.optimizer.kind == "sgd"
    scales = {"input": r if sgd else 1.0, "inside": 1.0 if sgd else 1 / r, "output": 1 / r}
    return {name: scales[_role(name, parameter)] for name, parameter in model.named_parameters()}


def _role(name: str, parameter: torch.Tensor) -> Literal["input", "inside", "output"]:
    """On which sides of a parameter the width is: behind it alone, on both, before it alone."""
    kind = _kind(name)
    if parameter.ndim < 2 or kind in {"embedding", "position"} or name.endswith(".lora_b.weight"):
        return "input"
    return "output" if kind in {"head", "few"} or name.endswith(".lora_a.weight") else "inside"


@torch.no_grad()
def initialize(
    model: Transformer,
    initialization: Initialization,
    seed: int,
    *,
    base_size: int | None = None,
    leave: Collection[str] = (),
) -> None:
    """Give every parameter its initial values, in place.

    Matrices are normal, cut at ±3 of their own standard deviation (of an absolute ±3 nothing would ever be cut), which
    leaves 0.9866 of it: every formula's standard deviation is that before the cut. Norms are one (zero where the weight
    is stored as an offset from one), biases are zero. The values of a parameter depend on the seed and its name only:
    not on the order of the modules, the device, or the number of threads.

    Args:
        model: whose parameters they are.
        initialization: which of the rules of `standard_deviations`.
        seed: of the run.
        base_size: hidden size at which `mup` changes nothing; nothing is the model's own.
        leave: names of parameters that stay as they are.
    """
    spreads = standard_deviations(model, initialization, base_size)
    for name, parameter in model.named_parameters():
        if name in leave:
            continue
        std = spreads[name]
        if std == 0:
            is_norm_weight = name.endswith("norm.weight") and not model.spec.norm.unit_offset
            parameter.fill_(1.0 if is_norm_weight else 0.0)
            continue
        generator = torch.Generator("cpu").manual_seed(stream_seed(seed, "initialization", name))
        if _is_plain(parameter):
            _draw(parameter, std, generator)
            continue
        values = torch.empty(parameter.shape, dtype=torch.float32, device="cpu")
        _draw(values, std, generator)
        put(parameter, values)


def _is_plain(parameter: torch.Tensor) -> bool:
    """Whether values can be drawn where they stay, which takes no second matrix."""
    is_whole = not hasattr(parameter, "placements") and parameter.is_contiguous()
    return is_whole and parameter.device.type == "cpu" and parameter.dtype == torch.float32


def _draw(values: torch.Tensor, std: float, generator: torch.Generator) -> None:
    """Normal values cut at `TRUNCATION`: what lies beyond is drawn again, with all of its round, until nothing does.

    The numbers are those of `torch.nn.init.trunc_normal_` (torch 2.13), which holds two more matrices and three masks
    of the whole: of an embedding more than a step of adapters does. Here it is a piece at a time.
    """
    bound = torch.tensor(TRUNCATION * std, dtype=torch.float32, device="cpu").item()
    values.normal_(0.0, std, generator=generator)
    least, most = -math.inf, math.inf
    while least < -bound or most > bound:  # a first round always, so that what it holds does not hang on luck
        for piece in torch.split(values.view(-1), draw_pieces(values.numel())):
            _draw_again(piece, std, bound, generator)
        least, most = (each.item() for each in torch.aminmax(values))


def _draw_again(piece: torch.Tensor, std: float, bound: float, generator: torch.Generator | None) -> None:
    again = torch.empty_like(piece).normal_(0.0, std, generator=generator)
    torch.where(piece.gt(bound).logical_or_(piece.lt(-bound)), again, piece, out=piece)


@torch.no_grad()
def rehearse(model: Transformer, *, leave: Collection[str] = ()) -> None:
    """Hold what `initialize` holds at its most, on fake tensors, which have no values to draw.

    Args:
        model: whose parameters they are.
        leave: names of parameters that stay as they are.
    """
    drawn = [p for name, p in model.named_parameters() if name not in leave and _is_drawn(name, p) and _is_plain(p)]
    if drawn:  # of one piece alone: a large model has millions, which hold nothing more
        most = max(drawn, key=lambda parameter: largest_draw(parameter.numel()))
        largest = most.view(-1)[: largest_draw(most.numel())]
        _draw_again(largest, 1.0, TRUNCATION, None)


def _is_drawn(name: str, parameter: torch.Tensor) -> bool:
    """Whether it does not begin constant: a matrix, but for B of an adapter, which begins as if it were not there."""
    return parameter.ndim == 2 and not name.endswith(".lora_b.weight")


def _kind(name: str) -> str:
    """What a matrix is for, where that decides its spread."""
    tables = {"embedding.weight": "embedding", "position_embedding.weight": "position", "head.weight": "head"}
    if name in tables:
        return tables[name]
    if name.endswith((".router.weight", ".shared_gate.weight")):
        return "few"
    return "residual" if name.endswith(("attention.output.weight", ".down.weight")) else "other"
