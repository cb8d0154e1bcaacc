"""Tensor and sequence parallelism by DTensor: every rank holds a share of the heads, of the MLP and of the vocabulary.

Queries, keys, values, gate and up are split by rows of their matrices, output and down by columns, so that a layer
sends twice a pass (Megatron-LM, Shoeybi et al., arXiv:1909.08053, section 3). With sequence parallelism the residual
stream and the norms are split by tokens, and each sum becomes a gathering and a scattering sum (Korthikanti et al.,
arXiv:2205.05198, section 4.2.2). The loss never sees whole logits.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.style import ParallelStyle
from torch.distributed.tensor.placement_types import Placement

from torchledger.trainer.model import Transformer

__all__ = ["Whole", "split"]


class Whole(ParallelStyle):
    """A module whose parameters every rank holds whole, while its input and output may be split.

    Plain tensors go in and come out. What a rank's share of the tokens or heads gives as a gradient of a parameter is a
    partial sum; who reads the gradients adds them up.

    Args:
        runs: how input and output are split over the ranks.
        arrives: how the input is split where it comes from, if otherwise.
    """

    def __init__(self, runs: Placement, arrives: Placement | None = None) -> None:
        super().__init__()
        self.runs, self.arrives = runs, arrives or runs

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        enter = partial(_enter, self.arrives, self.runs)
        return distribute_module(module, device_mesh, None, enter, _leave)  # type: ignore[arg-type]  # its types say no output


def split(model: Transformer, mesh: DeviceMesh, *, by_tokens: bool) -> None:
    """Let each rank of `mesh` hold its share of `model`, in place; shapes are `layout.require_layout`'s matter.

    Parameters become DTensors; their values are this rank's share of what it holds, and nothing is sent.

    Args:
        model: on every rank the same one.
        mesh: of one dimension.
        by_tokens: sequence parallelism: between the layers' matrices a rank has its share of the tokens.
    """
    stream: Placement = Shard(1) if by_tokens else Replicate()
    plan = _ends(model, stream)
    for name, _ in model.named_modules():
        if name.endswith("norm"):  # those of heads see a rank's heads, the others the stream
            plan[name] = Whole(Shard(2) if name.endswith((".query_norm", ".key_norm")) else stream)
    for number in range(len(model.layers)):
        plan |= {f"layers.{number}.{name}": style for name, style in _of_layer(stream).items()}
    there = dict(model.named_modules())
    parallelize_module(model, mesh, {name: s for name, s in plan.items() if name in there}, src_data_rank=None)
    if model.spec.tied_embeddings:  # each of the two has become a tensor of its own
        model.head.weight = model.embedding.weight
    if model.slopes is not None:
        model.slopes = model.slopes.chunk(mesh.size())[mesh.get_local_rank()].clone()


def _ends(model: Transformer, stream: Placement) -> dict[str, ParallelStyle]:
    """Embedding and head: a rank has some of the vocabulary."""
    del model
    return {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=stream),
        # positions count along the stream's tokens, which have no batch dimension before them here
        "position_embedding": Whole(Shard(0) if stream.is_shard() else Replicate(), arrives=Replicate()),
        "head": ColwiseParallel(input_layouts=stream, output_layouts=Shard(-1), use_local_output=False),
    }


def _of_layer(stream: Placement) -> dict[str, ParallelStyle]:
    columns = {f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")}
    columns |= {f"mlp.{name}": ColwiseParallel() for name in ("gate", "up")}
    return {
        **columns,
        # One gathering for all matrices that read it, and one sum of what they send back.
        "attention": PrepareModuleInput(
            input_layouts=(stream, None),
            desired_input_layouts=(Replicate(), None),
        ),
        "attention.output": RowwiseParallel(output_layouts=stream),
        "mlp": PrepareModuleInput(input_layouts=(stream,), desired_input_layouts=(Replicate(),)),
        "mlp.down": RowwiseParallel(output_layouts=stream),
    }


def _enter(arrives: Placement, runs: Placement, _module: nn.Module, inputs: Any, mesh: DeviceMesh) -> Any:
    first = inputs[0]
    if not isinstance(first, DTensor):
        first = DTensor.from_local(first, mesh, [arrives], run_check=False)
    return (first.redistribute(placements=[runs]), *inputs[1:])


def _leave(_module: nn.Module, outputs: Any, _mesh: DeviceMesh) -> Tensor:
    local: Tensor = outputs.to_local()
    return local
