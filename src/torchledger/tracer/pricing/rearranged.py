"""Prices of what only moves elements: copies, casts, padding, fills, masks, random numbers."""

from __future__ import annotations

from torchledger import ops
from torchledger.ledger import Work
from torchledger.ops import Piece
from torchledger.tracer.pricing.elements import num_elements
from torchledger.tracer.pricing.seen import Seen, price_of

_COPIES = (
    "clone", "_to_copy", "copy_", "copy", "cat", "stack", "_stack", "repeat", "repeat_interleave", "roll", "flip",
    "rot90", "triu", "tril", "triu_", "tril_", "constant_pad_nd", "slice_backward", "select_backward",
    "diagonal_backward", "contiguous", "_foreach_copy_", "_foreach_copy", "_foreach_clone", "select_scatter",
    "slice_scatter", "diagonal_scatter", "as_strided_scatter", "block_diag", "diag_embed", "channel_shuffle",
    "native_channel_shuffle",
    "pixel_shuffle", "pixel_unshuffle", "im2col", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "max_unpool2d", "max_unpool3d", "_chunk_cat",
    "lift_fresh_copy", "_copy_from", "_copy_from_and_resize", "_pin_memory", "masked_scatter", "masked_scatter_",
    "masked_scatter_backward", "masked_select", "lu_unpack", "int_repr", "resize", "resize_as", "set",
    "_reshape_copy", "_cudnn_rnn_flatten_weight", "_mask_projection", "_pack_padded_sequence", "_spdiags",
)  # fmt: skip
#: Every view has a twin that copies.
_COPIES_OF_VIEWS = (
    "_conj_copy", "_fw_primal_copy", "_indices_copy", "_make_dual_copy", "_neg_view_copy", "_reshape_alias_copy",
    "_sparse_broadcast_to_copy", "_values_copy", "alias_copy", "as_strided_copy", "ccol_indices_copy",
    "col_indices_copy", "crow_indices_copy", "detach_copy", "diagonal_copy", "expand_copy", "indices_copy",
    "narrow_copy", "permute_copy", "row_indices_copy", "select_copy", "slice_copy", "split_copy",
    "split_with_sizes_copy", "squeeze_copy", "t_copy", "transpose_copy", "unbind_copy", "unfold_copy",
    "unsqueeze_copy", "values_copy", "view_as_complex_copy", "view_as_real_copy", "view_copy",
)  # fmt: skip
_FILLS = (
    "fill_", "fill", "zero_", "zero", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "new_zeros",
    "new_ones", "new_full", "arange", "range", "eye", "scalar_tensor", "_foreach_zero_", "_foreach_zero", "linspace",
    "logspace", "one_hot", "tril_indices", "triu_indices", "_new_zeros_with_same_feature_meta", "fft_fftfreq",
    "fft_rfftfreq", "hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window",
    "from_file", "_fill_mem_eff_dropout_mask_",
)  # fmt: skip
_RANDOM = (
    "normal_", "uniform_", "bernoulli_", "bernoulli", "rand", "randn", "randint", "rand_like", "randn_like", "randperm",
    "normal", "multinomial", "exponential_", "random_", "binomial", "cauchy", "cauchy_", "exponential", "geometric",
    "geometric_", "log_normal", "log_normal_", "normal_functional", "poisson", "random", "randint_like", "uniform",
    "_standard_gamma", "_philox_normal", "_philox_normal_", "_philox_uniform", "_philox_uniform_",
    "_philox_key_fold_in", "_philox_key_split",
)  # fmt: skip


@price_of(*_COPIES, *_COPIES_OF_VIEWS)
def copied(seen: Seen) -> tuple[Piece, ...]:
    """A copy, a cast, a rearrangement."""
    return ops.copy(num_elements(seen), op="cast" if seen.op == "_to_copy" else "copy")


@price_of(*_FILLS)
def filled(seen: Seen) -> tuple[Piece, ...]:
    """Every element written with a number."""
    return ops.fill(num_elements(seen))


@price_of(*_RANDOM)
def random(seen: Seen) -> tuple[Piece, ...]:
    """Random numbers: how many operations one takes is the generator's secret, so only the bytes are told."""
    return (Piece(seen.op.strip("_"), "random", Work(), (("elements", seen.num_results),)),)


@price_of("nonzero", "nonzero_static")
def found(seen: Seen) -> tuple[Piece, ...]:
    """Where elements are not zero: a compare each."""
    return (Piece("nonzero", "gather", ops.pointwise("compare", seen.tensor("self").num_elements)[0].work),)


@price_of("col2im", "unfold_backward")
@price_of(*(f"{kind}_pad{dims}d_backward" for kind in ("reflection", "replication") for dims in (1, 2, 3)))
def folded(seen: Seen) -> tuple[Piece, ...]:
    """Elements added to where they came from: one add each."""
    elements = seen.first.num_elements
    return (Piece("fold", "gather", ops.pointwise("add", elements)[0].work, (("elements", elements),)),)
