"""Gates of a forward pass: ReLUs that never open, tanh and sigmoid at their ends, softmax that has already chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

GateKind: TypeAlias = Literal["relu", "tanh", "sigmoid", "softmax"]

aten = torch.ops.aten
_RELUS = {aten.relu, aten.relu_, aten.threshold, aten.threshold_}
_ENDS: dict[Any, tuple[GateKind, float, float]] = {
    aten.tanh: ("tanh", -0.99, 0.99),
    aten.tanh_: ("tanh", -0.99, 0.99),
    aten.sigmoid: ("sigmoid", 0.01, 0.99),
    aten.sigmoid_: ("sigmoid", 0.01, 0.99),
}
#: Fused attentions, and which argument says that they are causal.
_ATTENTIONS = {
    aten._scaled_dot_product_flash_attention_for_cpu: 4,  # noqa: SLF001  # the names are aten's
    aten._scaled_dot_product_flash_attention: 4,  # noqa: SLF001
    aten._scaled_dot_product_efficient_attention: 6,  # noqa: SLF001
    aten._scaled_dot_product_cudnn_attention: 6,  # noqa: SLF001
}
_SOFTMAXES = {aten._softmax, aten._safe_softmax}  # noqa: SLF001  # as above
_FEW = 8  # choices below which a softmax may well have chosen, positions below which a ReLU may well be closed
_QUERIES, _HEADS = 32, 4  # of an attention whose scores no operation writes out
_MASKED = -1e4  # what masks put in the place of a score, and lower


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate in one forward pass.

    Attributes:
        place: path of the module that it runs in.
        kind: which.
        share: units that are closed at every position (ReLU), values at an end (tanh, sigmoid), or the mean of each
            row's largest probability (softmax).
        count: units, values or rows looked at.
    """

    place: str
    kind: GateKind
    share: float
    count: int


def gate_of(packet: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any, place: str) -> Gate | None:
    """What an operation was as a gate; nothing where it is none, or has too few positions to say."""
    if packet in _RELUS or (packet is aten.clamp_min and args[1] == 0):
        return _relu(out, place) if out is args[0] or bool(args[0].any()) else None  # zeros are no ReLU's fault
    if packet in _ENDS:
        kind, low, high = _ENDS[packet]
        return Gate(place, kind, float(((out < low) | (out > high)).float().mean()), out.numel())
    if packet in _SOFTMAXES:
        return _softmax(args[0].detach(), args[1], place)
    return _attention(args, kwargs, _ATTENTIONS[packet], place) if packet in _ATTENTIONS else None


def _relu(out: Tensor, place: str) -> Gate | None:
    features = 1 if out.ndim == 4 else -1  # channels of an image, else the last axis
    flat = out.detach().movedim(features, -1).reshape(-1, out.shape[features])
    if len(flat) < 4 * _FEW:
        return None
    return Gate(place, "relu", float((flat.amax(0) <= 0).float().mean()), flat.shape[1])


def _softmax(scores: Tensor, axis: int, place: str) -> Gate | None:
    """Of rows that can choose between eight or more; what a mask has put far below does not count."""
    rows = scores.movedim(axis, -1).reshape(-1, scores.shape[axis])
    rows = rows[:: max(1, len(rows) // 4096)].float()
    rows = rows[(rows > _MASKED).sum(1) >= _FEW]
    return Gate(place, "softmax", float(rows.softmax(1).amax(1).mean()), len(rows)) if len(rows) else None


def _attention(args: tuple[Any, ...], kwargs: Mapping[str, Any], causal: int, place: str) -> Gate | None:
    """A fused attention [batch, heads, positions, size]: the last queries of some heads, their scores written out."""
    query, keys = args[0].detach(), args[1].detach()
    if query.shape[1] != keys.shape[1]:
        keys = keys.repeat_interleave(query.shape[1] // keys.shape[1], 1)
    num = min(_QUERIES, query.shape[2])
    last = query[:1, :_HEADS, -num:].float()
    scale = kwargs.get("scale") or 1 / math.sqrt(query.shape[-1])
    scores = last @ keys[:1, :_HEADS].float().transpose(-1, -2) * scale
    mask = kwargs.get("attn_mask")
    if mask is None and len(args) > 3 and isinstance(args[3], Tensor):
        mask = args[3]  # the bias of the memory-efficient kernel
    if mask is not None:
        mask = mask.detach().expand(*mask.shape[:-3], *query.shape[1:3], keys.shape[2])[..., :_HEADS, -num:, :]
        scores = scores + mask[:1] if mask.ndim == 4 else scores + mask
    if args[causal] if len(args) > causal else kwargs.get("is_causal", False):
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(~allowed.tril(scores.shape[-1] - num), -math.inf)
    return _softmax(scores, -1, place)
