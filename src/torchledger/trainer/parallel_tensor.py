"""Tensor and sequence parallelism: every rank holds a share of the heads, of the MLP and of the vocabulary.

Queries, keys, values, gate and up are split by rows of their matrices, output and down by columns, so that a layer
sends twice a pass (Megatron-LM, Shoeybi et al., arXiv:1909.08053, section 3); of a mixture every expert is, and the
router is whole. With sequence parallelism the residual stream and the norms are split by tokens, and each sum becomes
a gathering and a scattering sum (Korthikanti et al., arXiv:2205.05198, section 4.2.2). The loss never sees whole
logits. Where there are fewer key-value heads than ranks, several hold the same one (`key_value_heads`).

Parameters are DTensors, so that optimizers, norms and checkpoints know what is whose; modules compute with plain
tensors, each rank's own (`held`). What is whole on every rank, but sees a share of heads, columns or tokens, has a
share
of its gradient there: its module says so (`sums`), and whoever reads the gradients adds them up.
"""

from functools import partial
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import Placement

from torchledger.formula.narrow import runs_narrow
from torchledger.trainer.attention import Attention, Core
from torchledger.trainer.key_value_heads import HeadLayout
from torchledger.trainer.latent import LatentAttention
from torchledger.trainer.linear import Linear
from torchledger.trainer.mlp import Mlp
from torchledger.trainer.model import Layer, Transformer
from torchledger.trainer.moe import Moe, Router
from torchledger.trainer.norm import Norm
from torchledger.trainer.parallel_head import RowsOfHead
from torchledger.trainer.parallel_norm import NormOverRanks
from torchledger.trainer.parallel_stream import gathered, summed
from torchledger.trainer.parallel_table import RowsOfTable, TokensOfTable
from torchledger.trainer.seeds import OwnDraws

__all__ = ["split"]


def split(model: Transformer, mesh: DeviceMesh, *, by_tokens: bool) -> None:
    """Let each rank of `mesh` hold its share of `model`, in place; shapes are `layout.require_layout`'s matter.

    Parameters become DTensors; their values are this rank's share of what it holds, and nothing is sent.

    Args:
        model: on every rank the same one.
        mesh: of one dimension.
        by_tokens: sequence parallelism: between the layers' matrices a rank has its share of the tokens.
    """
    stream: Placement = Shard(1) if by_tokens else Replicate()
    heads = HeadLayout.of(mesh, model.spec.num_key_value_heads)
    _tables(model, mesh, stream)
    inside: set[nn.Module] = {model.head}
    for layer in [each for each in model.modules() if isinstance(each, Layer)]:
        for part in (layer.attention, layer.mlp):
            inside.update(part.modules())
            _exchange(part, mesh, stream)
        _attention(layer.attention, mesh, heads, draws=not by_tokens)
        _feed_forward(layer.mlp, mesh)
    for module in model.modules():  # norms of the stream, maps in and out of it
        if isinstance(module, Norm | Linear) and module not in inside:
            _whole(module, mesh, sums=by_tokens)
    # Each rank adds the whole of it; all their gradients are added up.
    model.load_balance /= mesh.size()
    if model.slopes is not None:
        model.slopes = model.slopes.chunk(mesh.size())[mesh.get_local_rank()].clone()


def _tables(model: Transformer, mesh: DeviceMesh, stream: Placement) -> None:
    """Embedding and head: a rank has some of the vocabulary. Positions count along the stream's tokens."""
    embedding, positions, head = model.embedding, model.position_embedding, model.head
    size = embedding.num_embeddings
    first = min(-(-size // mesh.size()) * mesh.get_local_rank(), size)
    _place(embedding, "weight", mesh, Shard(0))
    embedding.split = RowsOfTable(mesh, stream, first)
    if positions is not None:
        _place(positions, "weight", mesh, Replicate())
        if stream.is_shard():
            positions.split, positions.sums = TokensOfTable(mesh), True
    if model.spec.tied_embeddings:
        head.weight = embedding.weight
    else:
        _place(head, "weight", mesh, Shard(0))
    _place(head, "bias", mesh, Shard(0))
    head.split = RowsOfHead(mesh, stream, size, first)


def _exchange(part: nn.Module, mesh: DeviceMesh, stream: Placement) -> None:
    """One gathering for all matrices that read the input of attention or MLP, and one sum of what they give."""
    part.register_forward_pre_hook(partial(_gather, mesh, stream))
    part.register_forward_hook(partial(_sum, mesh, stream))


def _attention(attention: Attention | LatentAttention, mesh: DeviceMesh, key_value: HeadLayout, *, draws: bool) -> None:
    """A rank has some of the heads; what is made for all heads alike is made on every rank."""
    rows = HeadLayout(mesh, (Shard(0),))
    layouts = {"query": rows, "key": key_value, "value": key_value, "query_up": rows, "key_value_up": rows}
    attention.core.groups //= key_value.copies
    for name, module in attention.named_children():
        if isinstance(module, Linear):
            if name == "output":
                _columns(module, mesh)
            elif name in layouts:
                _rows(module, mesh, layouts[name])
            else:
                _whole(module, mesh, sums=True)
        elif isinstance(module, Norm):
            if name in {"query_norm", "key_norm"} and isinstance(attention, Attention) and not attention.norm_heads:
                _norm_over_heads(module, mesh, layouts[name.removesuffix("_norm")])
            else:
                _whole(module, mesh, sums=True)
        elif isinstance(module, Core) and draws:
            module.draws = OwnDraws(mesh.get_local_rank())


def _norm_over_heads(norm: Norm, mesh: DeviceMesh, layout: HeadLayout) -> None:
    """Of a vector with all heads; each that several ranks hold counts as often, which leaves means as they are."""
    _place(norm, "weight", layout.mesh, *layout.placements)
    norm.sums = layout.copies > 1
    norm.over_ranks = NormOverRanks(mesh, norm.size * layout.copies)


def _feed_forward(part: nn.Module, mesh: DeviceMesh) -> None:
    """A rank has some of the inner columns of the MLP, of each expert."""
    rows = HeadLayout(mesh, (Shard(0),))
    for module in part.modules():
        if isinstance(module, Mlp):
            if module.gate is not None:
                _rows(module.gate, mesh, rows)
            _rows(module.up, mesh, rows)
            _columns(module.down, mesh)
        elif isinstance(module, Router):
            _place(module, "weight", mesh, Replicate())
            module.sums = True
        elif isinstance(module, Moe) and module.shared_gate is not None:
            _whole(module.shared_gate, mesh, sums=True)


def _rows(linear: Linear, mesh: DeviceMesh, layout: HeadLayout) -> None:
    """Some outputs on each rank. Of an adapter B is split alike, and A is whole."""
    for name in ("weight", "bias"):
        _place(linear, name, layout.mesh, *layout.placements)
    linear.sums = layout.copies > 1
    if linear.rank:
        _whole(linear.lora_a, mesh, sums=True)
        _rows(linear.lora_b, mesh, layout)
    _narrow(linear, linear.in_features, linear.out_features * layout.copies // mesh.size())


def _columns(linear: Linear, mesh: DeviceMesh) -> None:
    """Some inputs on each rank, whose outputs are added up behind. Of an adapter A is split alike, and B is whole.

    What A gives is then a part too; B is applied to it, and the sum behind is that of both (B is linear).
    """
    _place(linear, "weight", mesh, Shard(1))
    _place(linear, "bias", mesh, Replicate())
    linear.is_adding = mesh.get_local_rank() == 0
    if linear.rank:
        _columns(linear.lora_a, mesh)
        _whole(linear.lora_b, mesh, sums=True)
    _narrow(linear, linear.in_features // mesh.size(), linear.out_features)


def _narrow(linear: Linear, inputs: int, outputs: int) -> None:
    """FP8 products want multiples of 16, of a rank's own matrix."""
    linear.is_narrow = linear.is_narrow and runs_narrow(inputs, outputs)


def _whole(module: Norm | Linear, mesh: DeviceMesh, *, sums: bool) -> None:
    """The same on every rank; `sums` says whether gradients are of a share of what it sees."""
    for name in ("weight", "bias"):
        _place(module, name, mesh, Replicate())
    module.sums = sums
    if isinstance(module, Linear) and module.rank:
        _whole(module.lora_a, mesh, sums=sums)
        _whole(module.lora_b, mesh, sums=sums)


def _place(module: nn.Module, name: str, mesh: DeviceMesh, *placements: Placement) -> None:
    parameter = getattr(module, name)
    if parameter is not None:
        shares = distribute_tensor(parameter, mesh, placements, src_data_rank=None)
        module.register_parameter(name, nn.Parameter(shares, requires_grad=parameter.requires_grad))


def _gather(mesh: DeviceMesh, stream: Placement, _module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return (gathered(inputs[0], mesh, stream), *inputs[1:])


def _sum(mesh: DeviceMesh, stream: Placement, _module: nn.Module, _inputs: Any, outputs: Any) -> Any:
    if isinstance(outputs, tuple):
        return (summed(outputs[0], mesh, stream), *outputs[1:])
    return summed(outputs, mesh, stream)
