"""Bytes of a stack's training state, per parameter: what stays, and what a backward pass and a step add to it."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

from torchledger.machine import Chip
from torchledger.memory import cuda_context
from torchledger.planner.stack import Stack
from torchledger.planner.state import state_bytes

_WIDE = frozenset({"fp32", "tf32", "bf16", "fp16"})


class StateRule(NamedTuple):
    """Bytes per parameter.

    Attributes:
        weight: the parameter.
        layer_weight: the parameter of a layer, where that is kept in another format than embedding and head.
        computed: the weight as layers compute with it (gathered, where that is another format).
        gathered: a layer's weight as it is gathered.
        gradient: the gradient that adds up over micro-batches.
        fresh: a second gradient between micro-batches.
        master: the FP32 copy.
        moments: the optimizer's averages; of `muon` those of matrices.
        end_moments: those of embedding and head.
        cast: a weight's gradient as its product gives it, before it has the weight's format.
        reduced: a group's gradient while level 3 reduces it, beside the computed one.
        update: copies of the shard's gradients in the optimizer's step.
        whole_update: the same where nothing is sharded.
        reduce_copy: a copy of all gradients to reduce them.
        tensor_copy: bytes per element of the largest tensor, copied to be checked.
    """

    weight: float
    layer_weight: float
    computed: float
    gathered: float
    gradient: float
    fresh: float
    master: float
    moments: float
    end_moments: float
    cast: float
    reduced: float
    update: float
    whole_update: float
    reduce_copy: float
    tensor_copy: float


@lru_cache(maxsize=512)
def state_rule(stack: Stack, asked: str, kind: str, has_momentum: bool, level: int) -> StateRule:
    """The rule of a stack for a recipe's precision, an optimizer and a shard level.

    >>> from torchledger.planner.stack import stack
    >>> rule = state_rule(stack("megatron"), "bf16", "adamw", False, 1)
    >>> rule.weight, rule.gradient, rule.master + rule.moments  # 6 + 12/d
    (2, 4.0, 12)
    """
    meant = stack.precision(asked)
    optimizer = "sgd-momentum" if kind == "sgd" and has_momentum else kind
    state = state_bytes(meant, optimizer)
    casts = stack.mixed_policy and meant not in {"fp32", "tf32"}
    weight, master = state.weight, state.master
    if casts and meant not in {"bf16-moments", "bf16-pure"}:  # FP32 shards are the master copy
        weight, master = 4.0, 0.0
    computed = 2.0 if (casts and level == 3) or meant not in _WIDE else 4.0
    own = 4.0 if casts and weight == 4 else state.gradient
    moment = 2.0 if meant == "bf16-pure" else 4.0
    return StateRule(
        weight=weight,
        layer_weight=stack.layer_weight_bytes.get(meant, weight),
        computed=computed,
        gathered=stack.gathered_weight_bytes.get(meant, computed),
        gradient=stack.gradient_bytes.get(meant, own),
        fresh=stack.fresh_gradient_bytes.get(meant, 0.0),
        master=master,
        moments=state.moments,
        end_moments=2 * moment if kind == "muon" else state.moments,
        cast=2.0 if meant in {"bf16", "fp16"} and computed == 4 else 0.0,  # bytes of 16 and 32 bits
        reduced=stack.gathered_gradient_bytes if stack.gathered_gradient_bytes != computed else 0.0,
        update=stack.update_gradient_bytes.get(meant, 0.0),
        whole_update=stack.whole_update_gradient_bytes.get(meant, stack.update_gradient_bytes.get(meant, 0.0)),
        reduce_copy=stack.reduce_copy_bytes.get(meant, 0.0),
        tensor_copy=stack.largest_tensor_bytes.get(meant, 0.0),
    )


def usable_bytes(chip: Chip) -> int | None:
    """What a process may use of a chip's memory; nothing if unknown.

    That is what the driver reports less its own reserve, or as sold where nobody wrote down what the driver reports.

    >>> from torchledger.machine import get
    >>> usable_bytes(get("a100-80gb")) / 2**30
    79.25
    """
    if chip.memory_bytes_reported is None:
        return chip.memory_bytes_nominal
    reserve: int = _facts()["driver"]["reserve_bytes"] if chip.vendor == "NVIDIA" else 0
    return chip.memory_bytes_reported - reserve


@lru_cache(maxsize=1)
def _facts() -> dict[str, Any]:
    return tomllib.loads(resources.files("torchledger.planner").joinpath("data/memory.toml").read_text("utf-8"))


class Overhead(NamedTuple):
    """Bytes that a process takes beside tensors.

    Attributes:
        context: CUDA context and loaded kernels.
        pair, group: a communicator over the links of an island, of two ranks and of more.
        network: a communicator over the network.
        workspace: cuBLAS's.
        hole_share: of the largest block, what one pool of expandable segments holds in holes at its peak.
    """

    context: int
    pair: int
    group: int
    network: int
    workspace: int
    hole_share: float


@lru_cache(maxsize=64)
def overhead(stack: Stack) -> Overhead:
    """What a process of a stack takes beside tensors."""
    facts = _facts()
    near, far, work = facts["communicator"], facts["network_communicator"], facts["workspace"]
    buffers = far["channels"] * far["connections"] * (far["simple_bytes"] + far["ll128_bytes"])
    context = cuda_context().high_bytes if stack.context_bytes is None else stack.context_bytes
    if stack.allocator == "xla":
        return Overhead(context, 0, 0, 0, 0, 0.0)
    cublas = work["bytes"] * work["streams"]
    holes: float = facts["expandable"]["hole_share"]
    return Overhead(context, near["pair_bytes"], near["group_bytes"], buffers, cublas, holes)


__all__ = ["Overhead", "StateRule", "overhead", "state_rule", "usable_bytes"]
