"""Attention logits and softmaxes of a forward pass, and the first operation that makes an infinity or NaN.

They are seen below autograd, where fused attention and attention written out by hand look alike to the user's code but
are operations with names.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from torchledger.auditor.precision_census import Census, count, merged

__all__ = ["Broken", "Logits", "Operations", "Softmax", "row_sum"]

_ATTENTION = frozenset(
    {
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_fused_attention_overrideable",
    }
)
_SOFTMAX = frozenset({"_softmax", "_safe_softmax"})
_LOG_SOFTMAX = "_log_softmax"
_LOW = frozenset({torch.bfloat16, torch.float16})
_MASKED = -9000.0  # what masks add where nobody attends: -10,000 (BERT), -1e9, the least number of a format
_MOST_LOGITS = 1 << 22  # made at a time: 16 MiB
_ROWS = 64  # of a softmax, whose sums are added up one by one
_LONGEST_ROW = 16384  # of which a sum is added up one by one
_FROM_DIMENSIONS = 3  # a softmax over a matrix is a router's or a loss's, not attention's


@dataclass(slots=True)
class Logits:
    """Attention logits of one module: query · key · scale, of the pairs that attend.

    Attributes:
        census: all of them.
        scale: what query · key is multiplied with; nothing where the product was made by hand.
        length: of a row.
    """

    census: Census
    scale: float | None
    length: int

    @property
    def before_scaling(self) -> float | None:
        """The largest query · key, which has to fit where the product is stored before it is scaled."""
        return None if not self.scale else self.census.largest / abs(self.scale)


@dataclass(slots=True)
class Softmax:
    """A softmax, or its logarithm.

    Attributes:
        length: of the longest row.
        format: what its result is stored in.
        is_log: whether it is the logarithm.
        sums: format -> the sum of a row's probabilities added one after the other in it, the one farthest from 1.
        off: for a 16-bit result, how far the worst row's sum is from 1; of a logarithm, root mean square error, nats.
    """

    length: int
    format: str
    is_log: bool
    sums: dict[str, float] = field(default_factory=dict)
    off: float | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """An operation that made infinity or NaN of finite numbers."""

    place: str
    operation: str
    format: str


@dataclass(slots=True)
class Operations:
    """What was seen of operations.

    Attributes:
        logits: module -> its attention logits.
        softmaxes: module and operation -> its softmax.
        broken: the first operation that made infinity or NaN.
        in_fp8: modules that multiply matrices in FP8 whatever is asked of them.
        mode: what looks, while it does.
    """

    logits: dict[str, Logits] = field(default_factory=dict)
    softmaxes: dict[str, Softmax] = field(default_factory=dict)
    broken: Broken | None = None
    in_fp8: set[str] = field(default_factory=set)
    mode: _Looking | None = None

    @contextlib.contextmanager
    def looking(self, where: Callable[[], str]) -> Iterator[None]:
        """Look at every operation in here; `where` names the module that runs."""
        self.mode = _Looking(self, where)
        try:
            with self.mode:
                yield
        finally:
            self.mode = None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Our own arithmetic in here is nobody's softmax."""
        if self.mode is None:
            yield
            return
        self.mode.is_paused = True
        try:
            yield
        finally:
            self.mode.is_paused = False


class _Looking(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class has no types
    def __init__(self, found: Operations, where: Callable[[], str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's class has no types
        self._found = found
        self._where = where
        self.is_paused = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        result = func(*args, **named)
        if self.is_paused:
            return result
        name = func._schema.name.removeprefix("aten::")  # noqa: SLF001  # the operation's public name is nowhere else
        with torch.no_grad():
            if name in _ATTENTION:
                self._attention(func, args, named)
            elif name == "_scaled_mm":
                self._found.in_fp8.add(self._where())
            elif name in _SOFTMAX or name == _LOG_SOFTMAX:
                self._softmax(name, args, result)
            if self._found.broken is None:
                self._check(name, (*args, *named.values()), result)
        return result

    def _attention(self, func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        names = [each.name for each in func._schema.arguments]  # noqa: SLF001  # as above
        given = {**dict(zip(names, args, strict=False)), **named}
        query, key = given["query"], given["key"]
        scale = given.get("scale") or 1 / math.sqrt(query.shape[-1])
        census, sums = _attended(query, key, scale, is_causal=bool(given.get("is_causal")))
        self._add(Logits(census, scale, key.shape[-2]))
        self._note_softmax("attention", Softmax(key.shape[-2], "FP32", is_log=False, sums=sums))

    def _add(self, logits: Logits) -> None:
        place = self._where()
        old = self._found.logits.get(place)
        if old is not None:
            logits.census = merged((old.census, logits.census))
            logits.length = max(old.length, logits.length)
        self._found.logits[place] = logits

    def _softmax(self, name: str, args: tuple[Any, ...], result: Tensor) -> None:
        scores, dim = args[0], args[1]
        if not scores.is_floating_point() or not scores.ndim:
            return
        is_log = name == _LOG_SOFTMAX
        rows = scores.movedim(dim, -1)
        if not is_log and scores.ndim >= _FROM_DIMENSIONS and dim in {-1, scores.ndim - 1}:
            self._add(Logits(count(_unmasked(rows)), None, rows.shape[-1]))
        kind = "FP32" if result.dtype not in _LOW else "BF16" if result.dtype == torch.bfloat16 else "FP16"
        seen = Softmax(rows.shape[-1], kind, is_log=is_log)
        sample = rows.reshape(-1, rows.shape[-1])[-_ROWS:].float()
        if not is_log:
            seen.sums = {name: row_sum(sample.softmax(-1), name) for name in ("BF16", "FP16")}
        if result.dtype in _LOW:
            seen.off = _off(rows, result.movedim(dim, -1), is_log=is_log)
        self._note_softmax(name.removeprefix("_").removeprefix("safe_"), seen)

    def _note_softmax(self, name: str, seen: Softmax) -> None:
        place = f"{self._where()}:{name}"
        old = self._found.softmaxes.get(place)
        if old is None or seen.length > old.length or (seen.off or 0) > (old.off or 0):
            self._found.softmaxes[place] = seen

    def _check(self, name: str, given: tuple[Any, ...], result: Any) -> None:
        made = result if isinstance(result, Tensor) else None
        if made is None or not made.is_floating_point() or not made.numel() or name.startswith("empty"):
            return
        if _is_real(made) or not all(_is_real(each) for each in given if isinstance(each, Tensor)):
            return
        if any(isinstance(each, float) and not math.isfinite(each) for each in given):
            return  # a mask, filled with infinity on purpose
        kind = str(made.dtype).removeprefix("torch.")
        self._found.broken = Broken(self._where(), name, kind)


def _is_real(tensor: Tensor) -> bool:
    """Whether a tensor has neither NaN nor +infinity; -infinity is what masks are made of."""
    if not tensor.is_floating_point() or not tensor.numel() or tensor.element_size() == 1:
        return True
    top = tensor.detach().amax()
    return bool(top < math.inf)


def _attended(query: Tensor, key: Tensor, scale: float, *, is_causal: bool) -> tuple[Census, dict[str, float]]:
    """The logits of all heads, a few rows at a time; and the sums of the last rows' probabilities in 16 bit."""
    width, length = query.shape[-1], key.shape[-2]
    if key.shape[1] != query.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    queries, keys = query.reshape(-1, query.shape[-2], width).float(), key.reshape(-1, length, width).float()
    found, rows = [], max(1, _MOST_LOGITS // max(1, length))
    logits = queries[:0, :0, :1].reshape(0, length) if not len(queries) else None
    for head, heads_keys in zip(queries, keys, strict=True):
        for begin in range(0, len(head), rows):
            logits = head[begin : begin + rows] @ heads_keys.T * scale
            found.append(count(_causal(logits, begin) if is_causal else logits))
    assert logits is not None, "attention has at least one head"
    last = logits[-1:] if is_causal else logits[-_ROWS:]  # the last position attends to all before it
    return merged(found), {name: row_sum(last.softmax(-1), name) for name in ("BF16", "FP16")}


def _causal(logits: Tensor, begin: int) -> Tensor:
    """The logits of pairs that attend, row r to the keys up to r, as one row."""
    rows = torch.arange(begin, begin + len(logits), device=logits.device)
    return logits[torch.arange(logits.shape[1], device=logits.device) <= rows[:, None]]


def _unmasked(rows: Tensor) -> Tensor:
    """Scores without what a mask put there; scores that are as large as a mask themselves are all taken."""
    real = torch.isfinite(rows) & (rows > torch.finfo(torch.float16).min * 1000)
    if bool(rows.detach().amax() < -_MASKED):
        real &= rows > _MASKED
    return rows.detach()[real]


def _off(scores: Tensor, result: Tensor, *, is_log: bool) -> float:
    length = scores.shape[-1]
    wide, low = scores.reshape(-1, length)[-_ROWS:].float(), result.reshape(-1, length)[-_ROWS:].float()
    if is_log:
        error = (low - wide.log_softmax(-1)).nan_to_num(0.0, 0.0, 0.0)
        return error.square().mean().sqrt().item()
    return (low.double().sum(-1) - 1).abs().max().item()


def row_sum(probabilities: Tensor, number_format: str) -> float:
    """The sums of rows, added one number after the other in a format, each time rounded: the one farthest from 1.

    Args:
        probabilities: (rows, length), each row with sum 1; of rows longer than 16,384 nothing is added up.
        number_format: BF16 or FP16.
    """
    if probabilities.shape[-1] > _LONGEST_ROW or not len(probabilities):
        return math.nan
    low = torch.bfloat16 if number_format == "BF16" else torch.float16
    terms = probabilities.to(low).T.contiguous()
    total = torch.zeros_like(terms[0])
    for term in terms:
        total = total + term
    sums = total.float()
    return sums[(sums - 1).abs().argmax()].item()
