"""What an operation reads and writes: the tensors it touches, and which it only asks for their shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torchledger.tracer.signature import Signature, SparseMeta, TensorMeta

#: No work at all beyond the views that `OpOverload.is_view` tells of: aliases, questions, memory that is not written.
FREE = frozenset(
    {
        "empty", "empty_like", "empty_strided", "empty_permuted", "empty_quantized", "new_empty", "new_empty_strided",
        "_empty_affine_quantized", "_empty_per_channel_affine_quantized", "_efficientzerotensor", "_unsafe_view",
        "lift_fresh", "lift", "_local_scalar_dense", "resize_", "resize_as_", "_resize_output_", "_resize_output",
        "set_", "detach_", "as_strided_", "squeeze_", "unsqueeze_", "t_", "transpose_", "_mkldnn_transpose_",
        "_reshape_alias", "view_as_real", "view_as_complex", "_lazy_clone", "unsafe_split", "unsafe_chunk",
        "unsafe_split_with_sizes", "sym_size", "sym_numel", "sym_stride", "sym_storage_offset", "sym_is_contiguous",
        "is_same_size", "is_pinned", "is_set_to", "is_coalesced", "_coalesced", "_coalesced_", "dense_dim",
        "sparse_dim", "_dimI", "_dimV", "_nnz", "_has_same_storage_numel", "_use_cudnn_ctc_loss",
        "_use_miopen_ctc_loss", "_fused_sdp_choice", "_cudnn_init_dropout_state", "record_stream", "_assert_async",
        "_assert_scalar", "_assert_tensor_metadata", "_functional_assert_async", "_functional_assert_scalar",
        "_functional_sym_constrain_range", "_functional_sym_constrain_range_for_size", "sym_constrain_range",
        "sym_constrain_range_for_size", "_linalg_check_errors", "_make_dep_token", "_print", "q_scale",
        "q_zero_point", "q_per_channel_axis", "q_per_channel_scales", "q_per_channel_zero_points", "qscheme",
        "_nested_get_jagged_dummy", "_nested_get_lengths", "_nested_get_max_seqlen", "_nested_get_min_seqlen",
        "_nested_get_offsets", "_nested_get_ragged_idx", "_nested_tensor_size", "_nested_tensor_strides",
        "_nested_tensor_storage_offsets", "_nested_compute_contiguous_strides_offsets", "_set_grad_enabled",
        "_validate_compressed_sparse_indices", "_cslt_sparse_mm_search", "_sparse_coo_tensor_with_dims",
        "_sparse_coo_tensor_with_dims_and_tensors", "_sparse_compressed_tensor_with_dims", "sparse_coo_tensor",
        "sparse_compressed_tensor", "sparse_resize", "sparse_resize_", "sparse_resize_and_clear",
        "sparse_resize_and_clear_", "resize_as_sparse", "resize_as_sparse_",
    }
)  # fmt: skip

#: Operations that write their first argument without reading it, or ask for its shape only.
_WRITTEN_ONLY = frozenset(
    {
        "copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "exponential_", "random_", "cauchy_",
        "geometric_", "log_normal_", "_philox_normal_", "_philox_uniform_", "_foreach_zero_", "_foreach_copy_",
        "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like", "new_zeros", "new_ones",
        "new_full", "fill", "zero", "copy", "normal_functional", "uniform", "exponential", "cauchy", "geometric",
        "log_normal", "random", "_foreach_zero", "_foreach_copy", "_new_zeros_with_same_feature_meta",
    }
)  # fmt: skip
_SHAPE_OF_INPUT = ("self",)
#: Operation -> arguments whose shape alone is asked for.
_UNREAD: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward", "adaptive_max_pool2d_backward",
            "adaptive_max_pool3d_backward", "fractional_max_pool2d_backward", "fractional_max_pool3d_backward",
            "avg_pool2d_backward", "avg_pool3d_backward", "_adaptive_avg_pool2d_backward",
            "_adaptive_avg_pool3d_backward", "adaptive_avg_pool3d_backward", "reflection_pad1d_backward",
            "reflection_pad2d_backward", "reflection_pad3d_backward", "replication_pad1d_backward",
            "replication_pad2d_backward", "replication_pad3d_backward", "nll_loss_backward", "nll_loss2d_backward",
        ),
        _SHAPE_OF_INPUT,
    ),
    "native_layer_norm_backward": ("bias",),
    "_fused_moving_avg_obs_fq_helper": (),
}  # fmt: skip

#: Operations that touch only a part of an operand: the rule's bytes are right, the tensors' are not.
PARTIAL = frozenset(
    {
        "embedding", "index_select", "gather", "index", "take", "take_along_dim", "_unsafe_index",
        "_unsafe_masked_index", "index_add_", "index_add", "scatter_add_", "scatter_add", "index_put_", "index_put",
        "_index_put_impl_", "_index_put_impl", "_unsafe_index_put", "_unsafe_masked_index_put_accumulate", "scatter_",
        "scatter", "index_copy", "index_copy_", "index_fill", "index_fill_", "index_reduce", "index_reduce_",
        "scatter_reduce", "scatter_reduce_", "put", "put_", "nll_loss_forward", "nll_loss2d_forward",
        "_embedding_bag", "_embedding_bag_forward_only", "embedding_renorm_",
    }
)  # fmt: skip
#: Operations that return a copy with a part of it taken from elsewhere, or a part alone: they read what they write.
_REPLACING = frozenset({"select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter", "sparse_mask"})


_ADDING = frozenset({"add_", "sub_"})


def bytes_moved(signature: Signature, results: tuple[TensorMeta, ...]) -> tuple[int, int]:
    """Bytes read and written: every distinct operand once, every distinct result or operand written in place once.

    An `out=` argument is written and not read; of an expanded operand its distinct elements are read.
    """
    schema = signature.overload()._schema  # noqa: SLF001  # torch's only way to a schema
    op = signature.op.split(".")[1]
    arguments = signature.bound()
    unread = set(_UNREAD.get(op, ()))
    if op in _WRITTEN_ONLY:
        unread.add(schema.arguments[0].name)
    if op.endswith("batch_norm_backward") and signature.op.startswith("aten"):
        # Training takes what it saved of the batch, evaluation what runs over batches.
        trains = bool(arguments.get("train", arguments.get("update", True)))
        unread.update(("running_mean", "running_var") if trains else ("save_mean", "save_invstd", "save_var"))
    read: dict[TensorMeta | SparseMeta, int] = {}
    written = 0
    writes = False
    for argument in schema.arguments:
        writes = writes or argument.is_write
        for meta in _metas(arguments[argument.name]):
            if argument.name not in unread and not argument.is_out:
                read[meta] = meta.num_bytes
            if argument.is_write:
                written += meta.num_bytes
    if op in _ADDING and isinstance(other := arguments.get("other"), SparseMeta):
        # The rows that a sparse gradient has, and no others, are read and written.
        target = arguments["self"]
        if isinstance(target, TensorMeta) and other.num_values is not None:
            touched = other.num_values * target.dtype.itemsize
            return other.num_bytes + touched, touched
    if op in _REPLACING:
        return sum(meta.num_bytes for meta in results), sum(meta.num_bytes for meta in results)
    if not writes:
        written = sum(meta.num_bytes for meta in results)
    return sum(read.values()), written


def _metas(value: object) -> Iterable[TensorMeta | SparseMeta]:
    items = value[1:] if isinstance(value, tuple) else (value,)
    return [item for item in items if isinstance(item, (TensorMeta, SparseMeta))]
