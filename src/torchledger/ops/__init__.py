"""What one operation costs: pure functions of sizes, shared by whoever predicts and whoever looks.

Every operation is a function of its sizes that returns a tuple of `Piece`; `rules` finds it by name, and another one
is registered in one line. Sizes may be numbers or symbols, so the arithmetic takes no `min`, `max` or `int` of them
(but for `causal_pairs` under a window).

FLOPs are counted as the house does everywhere: 2 a multiply-add in a contraction; outside contractions one add,
multiply or compare is 1, and exp, log, erf, tanh, roots and divisions are `transcendentals` and nothing else. Bytes:
each operand read once, each result written once.

    >>> from torchledger import ops
    >>> sum(piece.work.flops_full for piece in ops.rules["linear"](8, 4, 2))
    128
"""

from torchledger.ops.attention import (
    attention_fused,
    attention_fused_backward,
    attention_math,
    attention_math_backward,
    attention_product,
    causal_pairs,
)
from torchledger.ops.collective import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    receive,
    reduce,
    reduce_scatter,
    scatter,
    send,
)
from torchledger.ops.lookup import embedding, embedding_backward, gather, scatter_add, sort_indices, topk
from torchledger.ops.loss import log_softmax, log_softmax_backward, nll_loss, nll_loss_backward
from torchledger.ops.matmul import (
    bias_add,
    bias_gradient,
    linear,
    linear_input_gradient,
    linear_weight_gradient,
    matmul,
)
from torchledger.ops.normalization import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from torchledger.ops.optimizer import adamw, clip_grad_norm, gradient_accumulation, sgd
from torchledger.ops.piece import Piece, moved
from torchledger.ops.pointwise import (
    PerElement,
    copy,
    dropout,
    dropout_backward,
    fill,
    per_element,
    pointwise,
    pointwise_backward,
    rotary,
)
from torchledger.ops.reduction import per_row, reduction, softmax, softmax_backward
from torchledger.ops.registry import Rule, rule, rules

__all__ = [
    "PerElement",
    "Piece",
    "Rule",
    "adamw",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "attention_fused",
    "attention_fused_backward",
    "attention_math",
    "attention_math_backward",
    "attention_product",
    "bias_add",
    "bias_gradient",
    "broadcast",
    "causal_pairs",
    "clip_grad_norm",
    "copy",
    "dropout",
    "dropout_backward",
    "embedding",
    "embedding_backward",
    "fill",
    "gather",
    "gradient_accumulation",
    "layer_norm",
    "layer_norm_backward",
    "linear",
    "linear_input_gradient",
    "linear_weight_gradient",
    "log_softmax",
    "log_softmax_backward",
    "matmul",
    "moved",
    "nll_loss",
    "nll_loss_backward",
    "per_element",
    "per_row",
    "pointwise",
    "pointwise_backward",
    "receive",
    "reduce",
    "reduce_scatter",
    "reduction",
    "rms_norm",
    "rms_norm_backward",
    "rotary",
    "rule",
    "rules",
    "scatter",
    "scatter_add",
    "send",
    "sgd",
    "softmax",
    "softmax_backward",
    "sort_indices",
    "topk",
]
