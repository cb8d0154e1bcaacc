"""A training step of torchtitan's eager FSDP2 runs, built as its train.py and parallelize_llama.py build it."""

import contextlib
import functools
from collections import defaultdict
from dataclasses import dataclass

import torch
from titan_llama import Decoder, Shape
from torch._functorch.partitioners import get_default_op_list
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

#: What selective checkpointing keeps, of matrix products every other one (`_save_list`, parallelize_llama.py).
SAVED = frozenset(
    {
        torch.ops.aten.mm.default,
        torch.ops.aten._scaled_dot_product_efficient_attention.default,
        torch.ops.aten._scaled_dot_product_flash_attention.default,
        torch.ops._c10d_functional.reduce_scatter_tensor.default,
    }
)
#: The same at commit 2e998c0b1 (June 2026): every operation that PyTorch's partitioner calls compute-intensive.
SAVED_IN_2026 = SAVED | {operation.default for operation in get_default_op_list().compute_intensive_ops}


@dataclass(frozen=True)
class Configuration:
    """What a run's TOML says."""

    shape: Shape
    batch_size: int
    sequence_length: int
    num_shards: int
    num_tensor_parallel: int = 1
    checkpointing: str = "selective"  # none, full, selective (per op), alternate (every second block)
    saved: frozenset = SAVED
    optimizer: str = "fused"
    reshard_last: bool = False
    reduce_dtype: torch.dtype = torch.float32
    has_groups_of_ends: bool = False  # embedding, and norm with head, are groups of their own (from July 2025)
    keeps_logits: bool = False  # `pred` stays a local variable until the next step (before April 2024)


def selective(saved):
    """Contexts of one block's selective checkpointing that keeps these operations."""
    counted = defaultdict(int)

    def policy(context, function, *_args, **_kwargs):
        mode = "recompute" if context.is_recompute else "forward"
        if function == torch.ops.aten.mm.default:
            counted[mode] += 1
        is_kept = function in saved and not (function == torch.ops.aten.mm.default and counted[mode] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def checkpointed(model, configuration):
    """Wrap the blocks as the run's `activation_checkpoint` table says."""
    how, contexts = configuration.checkpointing, functools.partial(selective, configuration.saved)
    for number, (name, block) in enumerate(list(model.layers.named_children()), start=1):
        if how == "full" or (how == "alternate" and number % 2 == 0):
            model.layers.register_module(name, checkpoint_wrapper(block, preserve_rng_state=False))
        elif how == "selective":
            wrapped = checkpoint_wrapper(block, context_fn=contexts, preserve_rng_state=False)
            model.layers.register_module(name, wrapped)


def sharded(model, mesh, configuration):
    """FSDP2 on every block and on the root; the last block stays gathered unless the run says otherwise."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=configuration.reduce_dtype)
    how = {"mesh": mesh, "mp_policy": policy}
    if configuration.has_groups_of_ends:
        fully_shard(model.tok_embeddings, **how, reshard_after_forward=True)
        for block in model.layers.values():
            fully_shard(block, **how, reshard_after_forward=True)
        fully_shard([model.norm, model.output], **how, reshard_after_forward=False)
        fully_shard(model, **how)
        return
    last = len(model.layers) - 1
    for name, block in model.layers.items():
        fully_shard(block, **how, reshard_after_forward=configuration.reshard_last or int(name) < last)
    fully_shard(model, **how, reshard_after_forward=True)


def split(model, mesh):
    """Tensor and sequence parallel; the loss is computed on parts of the vocabulary."""
    ends = {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    parallelize_module(model, mesh, ends)
    for block in model.layers.values():
        has_norms = block.attention.q_norm is not None
        whole = {"use_local_output": not has_norms}
        plan = {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(
                input_layouts=(Shard(1), Replicate() if has_norms else None),
                desired_input_layouts=(Replicate(), Replicate() if has_norms else None),
            ),
            "attention.wq": ColwiseParallel(**whole),
            "attention.wk": ColwiseParallel(**whole),
            "attention.wv": ColwiseParallel(**whole),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(),
            "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "feed_forward.w1": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
            "feed_forward.w3": ColwiseParallel(),
        }
        parallelize_module(block, mesh, plan)
        if has_norms:
            for norm in (block.attention.q_norm, block.attention.k_norm):
                distribute_module(norm, mesh)


def meshes(configuration):
    """Meshes of data and tensor parallelism, the second `None` without."""
    c = configuration
    if c.num_tensor_parallel == 1:
        return init_device_mesh("cuda", (c.num_shards,)), None
    both = init_device_mesh("cuda", (c.num_shards, c.num_tensor_parallel), mesh_dim_names=("dp", "tp"))
    return both["dp"], both["tp"]


def build(configuration):
    """The step of a run: a function of nothing."""
    c = configuration
    mesh, tensor_mesh = meshes(c)
    with torch.device("meta"):
        model = Decoder(c.shape, c.sequence_length)
    if tensor_mesh is not None:
        split(model, tensor_mesh)
    checkpointed(model, c)
    sharded(model, mesh, c)
    model.to_empty(device="cuda")
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=3e-4,
        betas=(0.9, 0.95),
        weight_decay=0.1,
        fused=c.optimizer == "fused",
        foreach=c.optimizer == "foreach",
    )
    size = (c.batch_size, c.sequence_length)

    def step():
        tokens = torch.empty(size, dtype=torch.int64, device="cuda")
        labels = torch.empty(size, dtype=torch.int64, device="cuda")
        optimizer.zero_grad()
        with loss_parallel() if tensor_mesh is not None else contextlib.nullcontext():
            logits = model(tokens)
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))
            if not c.keeps_logits:
                del logits
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        return loss.detach()

    return step
