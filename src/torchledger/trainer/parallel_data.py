"""Data parallelism: replicas whose gradients are averaged (DDP), and models that ranks share (FSDP2, HSDP)."""

import warnings
from typing import cast

import torch
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate as replicate_module
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from torchledger.trainer.model import Transformer
from torchledger.trainer.prediction import Prediction

__all__ = ["replicate", "replicate_split", "shard"]


def replicate(model: Transformer, mesh: DeviceMesh, device: torch.device) -> DistributedDataParallel:
    """DDP around `model`: call the result in its place, and gradients are averaged over `mesh` in the backward pass.

    Every rank has drawn the same first values from the seed, so nothing is sent to begin with.
    """
    return DistributedDataParallel(
        model,
        device_ids=[device] if device.type == "cuda" else None,
        process_group=mesh.get_group(),
        forward_sync_buffers=False,
        init_sync=False,
    )


def replicate_split(model: Transformer, mesh: DeviceMesh) -> FSDPModule:
    """Replicas of a model whose matrices other ranks split already, in place: DDP takes no DTensors.

    Returns:
        The same model, as what can be told in which micro-batch its gradients are averaged.
    """
    _quiet_views()
    for layer in model.layers:
        replicate_module(layer, mesh=mesh)
    return cast("FSDPModule", replicate_module(model, mesh=mesh))


def shard(model: Transformer, mesh: DeviceMesh, *, reshard: bool) -> None:
    """FSDP2: a rank keeps its share of every parameter, and gathers a layer's when it runs (ZeRO-3, arXiv:1910.02054).

    Embedding, each layer, and last norm with head are gathered by themselves; a tied head goes with its embedding, and
    both ends together where prediction layers read them again: once for all losses, and once for their gradients.

    Args:
        model: sharded in place; its parameters may be DTensors already.
        mesh: of one dimension; or of two, replicas of shards (HSDP).
        reshard: whether gathered weights are given back after the forward pass, and gathered again.
    """
    _quiet_views()
    units = _units(model)
    for unit in units:
        fully_shard(unit, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
    if not _trains(_before(model)):
        _gather_no_more_than_flows([*units, [model]])


def _units(model: Transformer) -> list[list[nn.Module]]:
    """What is gathered together, in the order in which the forward pass is done with it; the rest is the model's."""
    units = [[layer] for layer in model.layers]
    if model.prediction is not None:
        for each in model.prediction:
            assert isinstance(each, Prediction)
            units += [[each.layer], each.beside_layer()]
    elif not model.spec.tied_embeddings:
        units = [_before(model), *units, _after(model)]
    return units


def _gather_no_more_than_flows(units: list[list[nn.Module]]) -> None:
    """Tell the first unit that a gradient reaches not to gather the one before it, as each does for the backward pass.

    Its list of whom to gather may not be empty, which would mean the usual one; itself is there already.
    """
    first = next(filter(_trains, units))
    unit = cast("FSDPModule", first[0])  # modules of one unit are told by any of them
    unit.set_modules_to_backward_prefetch([unit])


def _trains(unit: list[nn.Module]) -> bool:
    return any(parameter.requires_grad for module in unit for parameter in module.parameters())


def _quiet_views() -> None:
    """An embedding or norm that tensor parallelism splits hands on a view; nothing here writes into one in place."""
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)


def _before(model: Transformer) -> list[nn.Module]:
    parts = (model.embedding, model.embedding_projection, model.position_embedding, model.embedding_norm)
    return [part for part in parts if part is not None]


def _after(model: Transformer) -> list[nn.Module]:
    parts = (model.final_norm, model.embedding_projection_out, model.head)
    return [part for part in parts if part is not None]
