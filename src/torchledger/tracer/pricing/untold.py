"""Operations whose cost cannot be told from shapes, each with the reason, which the ledger repeats."""

from __future__ import annotations

from collections.abc import Mapping

from torchledger.ledger import Work
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Seen

_DEGREE = "the degree is data, and torch chooses between recurrence and closed form by the values"
_LAYOUT = "it runs on tensors of another library's layout, of which a trace has none"
_DEVICE = "it runs on devices that are no target"
_QUANTIZED = "it runs on quantized tensors, which do not train"
_NESTED = "rows of uneven length: how long they are is data"
_TEST = "torch's own tests have it, no model does"

#: Operation -> why a count of it would be a guess.
WHY: Mapping[str, str] = {
    "gcd": "Euclid's algorithm takes as many steps as the integers ask for",
    "lcm": "Euclid's algorithm takes as many steps as the integers ask for",
    "linalg_matrix_exp": "the degree of its polynomial and the number of squarings depend on the matrix's norm",
    "_compute_linear_combination": "it is a part of the matrix exponential",
    "multilabel_margin_loss_forward": "how many targets a row has is data",
    "multilabel_margin_loss_backward": "how many targets a row has is data",
    "_fused_moving_avg_obs_fq_helper": "whether the observer and the rounding are on is data",
    "_fused_moving_avg_obs_fq_helper_functional": "whether the observer and the rounding are on is data",
    "_sample_dirichlet": "draws are rejected and made again as the numbers fall",
    "_dirichlet_grad": "its series are as long as the values ask for",
    "_standard_gamma_grad": "its series are as long as the values ask for",
    "hash_tensor": "a hash of bits is no floating-point work, and its passes are the kernel's own",
    "histogramdd": "the bins of each dimension are searched by the values",
    "_histogramdd_from_bin_tensors": "how many dimensions each value is searched in depends on where it falls",
    "_histogramdd_from_bin_cts": "how many dimensions each value is searched in depends on where it falls",
    "_transform_bias_rescale_qkv": _NESTED,
    "_padded_dense_to_jagged_forward": _NESTED,
    "_jagged_to_padded_dense_forward": _NESTED,
    "to_padded_tensor": _NESTED,
    **dict.fromkeys(
        (f"special_{family}_polynomial_{letter}" for family, letters in {
            "chebyshev": "tuvw", "shifted_chebyshev": "tuvw", "laguerre": "l", "legendre": "p",
        }.items() for letter in letters),
        _DEGREE,
    ),
    "special_hermite_polynomial_h": _DEGREE,
    "special_hermite_polynomial_he": _DEGREE,
}  # fmt: skip

#: Beginnings of names -> the same reason for all of them.
WHY_BY_BEGINNING: Mapping[str, str] = {
    "_mkldnn_": _LAYOUT,
    "mkldnn_": _LAYOUT,
    "to_mkldnn": _LAYOUT,
    "_nnpack_": _DEVICE,
    "_mps_": _DEVICE,
    "mps_": _DEVICE,
    "_lstm_mps": _DEVICE,
    "lstm_mps_": _DEVICE,
    "miopen_": _DEVICE,
    "_nested_": _NESTED,
    "_test_": _TEST,
    "_foobar": _TEST,
    "quantized_": _QUANTIZED,
    "_make_per_": _QUANTIZED,
}


def why(op: str) -> str:
    """Why the operation has no count, empty where nobody has said."""
    reason = WHY.get(op) or WHY.get(op.removesuffix("_"))
    return reason or next((text for begin, text in WHY_BY_BEGINNING.items() if op.startswith(begin)), "")


def untold(seen: Seen, reason: str) -> tuple[Piece, ...]:
    """A piece of kind `unknown`, and the reason among what the ledger assumes."""
    seen.assumptions.append(reason)
    return (Piece(seen.op, "unknown", Work(None, None, None, None)),)
