"""Prices of losses other than cross-entropy, forward and backward."""

from __future__ import annotations

from torchledger import ops
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Price, Seen, price_of, prices
from torchledger.tracer.pricing.untold import untold

#: torch's numbers of how a loss is reduced.
_NONE, _MEAN = 0, 1
_ONES = {
    "mse_loss": "mse",
    "smooth_l1_loss": "smooth_l1",
    "huber_loss": "huber",
    "binary_cross_entropy": "binary_cross_entropy",
    "soft_margin_loss": "soft_margin",
}


@price_of("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(seen: Seen) -> tuple[Piece, ...]:
    """(1 - t)·a - ((w - 1)·t + 1)·logsigmoid(a): a weight of positives costs 4 more an element, another one 1."""
    extra = (4 if seen.optional("pos_weight") is not None else 0) + _weight(seen)
    return ops.criterion(seen.op, seen.tensor("self").num_elements, weight_flops=extra, **_reduction(seen))


@price_of("multi_margin_loss")
def multi_margin(seen: Seen) -> tuple[Piece, ...]:
    """Hinges of all wrong classes of a row."""
    rows, classes = _rows(seen)
    weighted = seen.optional("weight") is not None
    return ops.multi_margin(rows, classes, power=int(seen.arguments["p"]), weighted=weighted, **_reduction(seen))


@price_of("multi_margin_loss_backward")
def multi_margin_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient."""
    rows, classes = _rows(seen)
    weighted = seen.optional("weight") is not None
    return ops.multi_margin_backward(rows, classes, power=int(seen.arguments["p"]), weighted=weighted)


@price_of("_ctc_loss", "_cudnn_ctc_loss")
def ctc(seen: Seen) -> tuple[Piece, ...]:
    """Alignments of labels to frames."""
    sizes = _alignment(seen)
    return ops.ctc(*sizes) if sizes else untold(seen, "CTC loss: how long targets are is data here")


@price_of("_ctc_loss_backward")
def ctc_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient, in every score of every frame."""
    sizes = _alignment(seen)
    if not sizes:
        return untold(seen, "CTC loss: how long targets are is data here")
    return ops.ctc_backward(*sizes, seen.tensor("log_probs").num_elements)


def _alignment(seen: Seen) -> tuple[int, int] | None:
    """Frames (times states) of the batch, and 1; lengths that are tensors count as the longest their shapes allow."""
    frames, labels = seen.arguments["input_lengths"], seen.arguments["target_lengths"]
    if isinstance(frames, tuple) and isinstance(labels, tuple):
        return sum(t * (2 * n + 1) for t, n in zip(frames[1:], labels[1:], strict=True)), 1
    targets, scores = seen.tensor("targets"), seen.tensor("log_probs")
    if len(targets.shape) != 2:
        return None
    batch = targets.shape[0]
    seen.assumptions.append("CTC loss: every input and target is as long as its padded tensor")
    return batch * scores.shape[0] * (2 * targets.shape[1] + 1), 1


def _elementwise(name: str) -> Price:
    def price(seen: Seen) -> tuple[Piece, ...]:
        return ops.criterion(name, _elements(seen), weight_flops=_weight(seen), **_reduction(seen))

    return price


def _elementwise_backward(name: str) -> Price:
    return lambda seen: ops.criterion_backward(name, _elements(seen), weight_flops=_weight(seen))


def _elements(seen: Seen) -> int:
    """Elements after input and target are brought to one shape; never fewer than the input has."""
    return max(seen.tensor("self").num_elements, seen.tensor("target").num_elements)


def _weight(seen: Seen) -> int:
    return 1 if seen.optional("weight") is not None else 0


def _reduction(seen: Seen) -> dict[str, bool]:
    reduction = seen.arguments["reduction"]
    return {"reduced": reduction != _NONE, "mean": reduction == _MEAN}


def _rows(seen: Seen) -> tuple[int, int]:
    scores = seen.tensor("self")
    classes = scores.shape[-1] if scores.shape else 1
    return scores.num_elements // max(classes, 1), classes


for _op, _name in _ONES.items():
    prices[_op] = _elementwise(_name)
    prices[f"{_op}_backward"] = _elementwise_backward(_name)
