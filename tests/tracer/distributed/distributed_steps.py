"""Builders of distributed steps of the small Llama, for one rank of them."""

import torch
from small_llama import Llama, Sizes, data, loss_of
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional

MIXED = MixedPrecisionPolicy(torch.bfloat16, torch.float32)


def fsdp(sizes, shape, *, device="cuda", batch=2, length=16, names=None, clip=False, **options):
    """FSDP2 of every layer and of the model around them, AdamW one kernel an operation."""

    def build():
        mesh = init_device_mesh(device, shape, mesh_dim_names=names)
        model = Llama(sizes)
        for layer in model.layers:
            fully_shard(layer, mesh=mesh, **options)
        fully_shard(model, mesh=mesh, **options)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        tokens, labels = data(sizes, batch, length)

        def step():
            loss_of(model(tokens), labels).backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        return step

    return build


def tensor_parallel(model, mesh):
    """Megatron's tensor and sequence parallelism: heads, inner features and the vocabulary cut up."""
    gathered = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    plan = {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    for number in range(len(model.layers)):
        layer = {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(**gathered),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(),
            "feed_forward": PrepareModuleInput(**gathered),
            "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
        }
        columns = ("attention.wq", "attention.wk", "attention.wv", "feed_forward.w1", "feed_forward.w3")
        layer |= {name: ColwiseParallel() for name in columns}
        plan |= {f"layers.{number}.{name}": style for name, style in layer.items()}
    parallelize_module(model, mesh, plan)


def two_dimensional(sizes, data_ranks, tensor_ranks, *, batch=2, length=16):
    """FSDP2 over tensor parallelism (over it alone where there is one data rank); the loss is parallel too."""

    def build():
        mesh = init_device_mesh("cuda", (data_ranks, tensor_ranks), mesh_dim_names=("data", "tensor"))
        model = Llama(sizes)
        tensor_parallel(model, mesh["tensor"])
        if data_ranks > 1:
            for layer in model.layers:
                fully_shard(layer, mesh=mesh["data"], mp_policy=MIXED)
            fully_shard(model, mesh=mesh["data"], mp_policy=MIXED)
        tokens, labels = data(sizes, batch, length)

        def step():
            with loss_parallel():
                functional.cross_entropy(model(tokens).flatten(0, 1).float(), labels.flatten()).backward()
            model.zero_grad()

        return step

    return build


def sent(trace, op=""):
    """Bytes that the rank sends in a step, by the name of the operation and the phase that it is for."""
    found = {}
    for line in trace.ledger.lines:
        if line.kind == "collective" and line.op.startswith(op):
            found[line.op] = found.get(line.op, 0) + line.total.bytes_sent
    return found


def contraction_flops(trace):
    """FLOPs of matrix products and attention."""
    return sum(line.total.flops_full for line in trace.ledger.lines if line.kind in {"matmul", "attention"})


__all__ = ["MIXED", "Sizes", "contraction_flops", "fsdp", "sent", "two_dimensional"]
