"""Activation checkpointing of a model's blocks, put on from outside: full, every n-th block, or all but chosen ops."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from torchledger.tracer.errors import TraceError

#: "none"; "full": every block; "selective": every block, the results of contractions kept; n: every n-th block;
#: operations (`aten.mm.default`): every block, the results of these kept.
CheckpointPolicy: TypeAlias = Literal["none", "full", "selective"] | int | tuple[str, ...]

#: What "selective" keeps: matrix products and fused attention, as torchtitan's per-op policy does.
SELECTIVE = (
    "aten.mm.default",
    "aten.addmm.default",
    "aten.bmm.default",
    "aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_efficient_attention.default",
    "aten._scaled_dot_product_cudnn_attention.default",
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten.convolution.default",
)


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The repeated blocks of a model, in order: the members of every outermost list of two or more of one class.

    A model with an encoder and a decoder has two lists.
    """
    found: list[nn.Module] = []
    inside: set[int] = set()
    for module in model.modules():
        if id(module) in inside or not isinstance(module, (nn.ModuleList, nn.Sequential)):
            continue
        members = list(module)
        if len(members) > 1 and len({type(member) for member in members}) == 1 and _is_block(members[0]):
            found.extend(members)
            inside.update(id(part) for member in members for part in member.modules())
    return found


def checkpointed(model: nn.Module, policy: CheckpointPolicy, *, reentrant: bool = False) -> None:
    """Run the model's blocks under `torch.utils.checkpoint`, changed in place: only ever done to a copy.

    Args:
        model: the model.
        policy: see `CheckpointPolicy`.
        reentrant: the older way, which recomputes a whole block and needs an input that requires a gradient.

    Raises:
        TraceError: no repeated blocks, an impossible policy, or an operation that is none.
    """
    if policy == "none":
        return
    every = policy if isinstance(policy, int) else 1
    if every < 1:
        raise TraceError(f"every {every}th block cannot be checkpointed", remedy="Take 1 or more")
    blocks = blocks_of(model)
    if not blocks:
        raise TraceError(
            "the model has no repeated blocks to checkpoint",
            remedy="Put them into an nn.ModuleList or nn.Sequential, or call torch.utils.checkpoint in the model",
        )
    kept = SELECTIVE if policy == "selective" else policy if isinstance(policy, tuple) else ()
    if kept and reentrant:
        raise TraceError("reentrant checkpointing keeps no operation's results", remedy="Take reentrant=False")
    options: dict[str, Any] = {"use_reentrant": reentrant}
    if kept:
        options["context_fn"] = functools.partial(create_selective_checkpoint_contexts, _overloads(kept))
    for block in blocks[::every]:
        block.forward = _Checkpointed(block, options)


class _Checkpointed:
    """A block's forward under checkpointing."""

    def __init__(self, block: nn.Module, options: dict[str, Any]) -> None:
        self._forward: Callable[..., Any] = block.forward
        self._options = options
        self._block = block
        self._is_running = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._is_running:
            return self._forward(*args, **kwargs)
        return checkpoint(self._again, *args, **kwargs, **self._options)

    def _again(self, *args: Any, **kwargs: Any) -> Any:
        # Through the block's own call, so that what is recomputed is known to be the block's. Its hooks have run.
        self._is_running = True
        try:
            return self._forward(*args, **kwargs) if _has_hooks(self._block) else self._block(*args, **kwargs)
        finally:
            self._is_running = False


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)  # noqa: SLF001  # no public door to a module's hooks


def _is_block(module: nn.Module) -> bool:
    """Whether a module is made of others that have parameters: a list of plain layers is no list of blocks."""
    return any(True for child in module.children() for _ in child.parameters())


def _overloads(names: Iterable[str]) -> list[Any]:
    found = []
    for name in names:
        try:
            namespace, packet, overload = name.split(".")
            found.append(getattr(getattr(getattr(torch.ops, namespace), packet), overload))
        except (ValueError, AttributeError):
            raise TraceError(f"there is no operation {name!r}", remedy="Name it like aten.mm.default") from None
    return found
