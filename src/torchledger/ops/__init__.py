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

from torchledger.ops.activation import activation, activation_backward
from torchledger.ops.attention import (
    attention_fused,
    attention_fused_backward,
    attention_math,
    attention_math_backward,
    attention_product,
    causal_pairs,
    needed_only,
)
from torchledger.ops.channel_norm import (
    batch_norm,
    batch_norm_backward,
    group_norm,
    group_norm_backward,
    renorm,
    weight_norm,
    weight_norm_backward,
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
from torchledger.ops.convolution import (
    convolution,
    convolution_bias_gradient,
    convolution_input_gradient,
    convolution_weight_gradient,
)
from torchledger.ops.criterion import (
    criterion,
    criterion_backward,
    ctc,
    ctc_backward,
    multi_margin,
    multi_margin_backward,
)
from torchledger.ops.elementary import complex_elementary, elementary, elementwise
from torchledger.ops.fft import fourier_transform
from torchledger.ops.fused_optimizer import fused_adagrad, fused_adam, unscale, update_scale
from torchledger.ops.interpolation import (
    antialiased_taps,
    grid_sample,
    grid_sample_backward,
    interpolate,
    interpolate_antialiased,
    interpolate_antialiased_backward,
    interpolate_backward,
)
from torchledger.ops.linalg import cross_product, matrix_factorization
from torchledger.ops.lookup import (
    embedding,
    embedding_backward,
    embedding_bag,
    embedding_bag_backward,
    gather,
    scatter_add,
    sort_indices,
    topk,
)
from torchledger.ops.loss import log_softmax, log_softmax_backward, nll_loss, nll_loss_backward
from torchledger.ops.matmul import (
    bias_add,
    bias_gradient,
    linear,
    linear_input_gradient,
    linear_weight_gradient,
    matmul,
)
from torchledger.ops.multilinear import (
    distances,
    distances_by_product,
    grouped_matmul,
    sparse_matmul,
    trilinear,
)
from torchledger.ops.normalization import layer_norm, layer_norm_backward, rms_norm, rms_norm_backward
from torchledger.ops.optimizer import adamw, clip_grad_norm, gradient_accumulation, sgd
from torchledger.ops.optimizer_kinds import adafactor, adamw_8bit, lion, muon, newton_schulz
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
from torchledger.ops.pooling import (
    adaptive_windows,
    average_pool,
    average_pool_backward,
    max_pool,
    max_pool_backward,
    windows,
)
from torchledger.ops.quantization import quantized
from torchledger.ops.recurrent import (
    recurrent_cell,
    recurrent_cell_backward,
    recurrent_layer,
    recurrent_layer_backward,
)
from torchledger.ops.reduction import per_row, reduction, softmax, softmax_backward
from torchledger.ops.registry import Rule, rule, rules
from torchledger.ops.selection import histogram, order, search

__all__ = [
    "PerElement",
    "Piece",
    "Rule",
    "activation",
    "activation_backward",
    "adafactor",
    "adamw",
    "adamw_8bit",
    "adaptive_windows",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "antialiased_taps",
    "attention_fused",
    "attention_fused_backward",
    "attention_math",
    "attention_math_backward",
    "attention_product",
    "average_pool",
    "average_pool_backward",
    "batch_norm",
    "batch_norm_backward",
    "bias_add",
    "bias_gradient",
    "broadcast",
    "causal_pairs",
    "clip_grad_norm",
    "complex_elementary",
    "convolution",
    "convolution_bias_gradient",
    "convolution_input_gradient",
    "convolution_weight_gradient",
    "copy",
    "criterion",
    "criterion_backward",
    "cross_product",
    "ctc",
    "ctc_backward",
    "distances",
    "distances_by_product",
    "dropout",
    "dropout_backward",
    "elementary",
    "elementwise",
    "embedding",
    "embedding_backward",
    "embedding_bag",
    "embedding_bag_backward",
    "fill",
    "fourier_transform",
    "fused_adagrad",
    "fused_adam",
    "gather",
    "gradient_accumulation",
    "grid_sample",
    "grid_sample_backward",
    "group_norm",
    "group_norm_backward",
    "grouped_matmul",
    "histogram",
    "interpolate",
    "interpolate_antialiased",
    "interpolate_antialiased_backward",
    "interpolate_backward",
    "layer_norm",
    "layer_norm_backward",
    "linear",
    "linear_input_gradient",
    "linear_weight_gradient",
    "lion",
    "log_softmax",
    "log_softmax_backward",
    "matmul",
    "matrix_factorization",
    "max_pool",
    "max_pool_backward",
    "moved",
    "multi_margin",
    "multi_margin_backward",
    "muon",
    "needed_only",
    "newton_schulz",
    "nll_loss",
    "nll_loss_backward",
    "order",
    "per_element",
    "per_row",
    "pointwise",
    "pointwise_backward",
    "quantized",
    "receive",
    "recurrent_cell",
    "recurrent_cell_backward",
    "recurrent_layer",
    "recurrent_layer_backward",
    "reduce",
    "reduce_scatter",
    "reduction",
    "renorm",
    "rms_norm",
    "rms_norm_backward",
    "rotary",
    "rule",
    "rules",
    "scatter",
    "scatter_add",
    "search",
    "send",
    "sgd",
    "softmax",
    "softmax_backward",
    "sort_indices",
    "sparse_matmul",
    "topk",
    "trilinear",
    "unscale",
    "update_scale",
    "weight_norm",
    "weight_norm_backward",
    "windows",
]
