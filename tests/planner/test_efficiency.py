"""Seconds of a kernel: a roofline whose roofs depend on shape, alignment and size."""

from __future__ import annotations

import pytest

from torchledger.ledger import Line, Work
from torchledger.planner.efficiency import Chipset, alignment_share, line_s, matmul_s

A100 = Chipset(
    flops_per_s=(("bf16", 270e12),),
    attention_flops_per_s=(160e12, 130e12),
    attention_small_heads=(0.9, 0.8),
    attention_ramp=320,
    bytes_per_s=1.6e12,
    num_multiprocessors=108,
    kernel_s=4e-6,
)
#: An A100's products with memory that never holds them up, and with its own.
WIDE = {"flops_per_s": 270e12, "num_multiprocessors": 108, "bytes_per_s": 1e15}
NARROW = {"flops_per_s": 270e12, "num_multiprocessors": 108, "bytes_per_s": 1.6e12}


def test_a_product_of_whole_waves_runs_at_the_full_rate_but_for_the_ramp_along_k() -> None:
    # 108 tiles of 256·128 are one wave: 12·256 rows, 9·128 columns
    full = 2 * (12 * 256) * (9 * 128) * 8192 / 270e12
    assert matmul_s(1, 12 * 256, 9 * 128, 8192, **WIDE) == pytest.approx(full * (8192 + 96) / 8192)


def test_one_tile_more_than_a_wave_takes_a_second_wave() -> None:
    one = matmul_s(1, 12 * 256, 9 * 128, 8192, **WIDE)
    more = matmul_s(1, 12 * 256, 9 * 128 + 8, 8192, **WIDE)
    assert more > 1.2 * one


def test_a_thin_product_is_bound_by_its_bytes() -> None:
    moved = 2 * (8 * 8192 + 8192 * 8192 + 8 * 8192)
    assert matmul_s(1, 8, 8192, 8192, **NARROW) == pytest.approx(moved / 1.6e12)


def test_more_work_never_takes_less_time_when_whole_tiles_are_added() -> None:
    times = [matmul_s(1, 256 * n, 4096, 4096, **NARROW) for n in range(1, 64)]
    assert all(later >= earlier * 0.999 for earlier, later in zip(times, times[8:], strict=False))


@pytest.mark.parametrize(("size", "share"), [(64, 1.0), (128, 1.0), (2, 272.7 / 398.4), (1, 272.7 / 398.4)])
def test_rows_that_are_not_aligned_lose_rate(size: int, share: float) -> None:
    assert alignment_share(4096, size) == pytest.approx(share)


def test_a_line_that_moves_no_bytes_is_part_of_another_kernel_and_takes_no_time() -> None:
    assert line_s(Line("core", "softmax", Work.of_flops(10), "reduction"), A100) == 0


def test_a_pointwise_line_takes_its_bytes_and_the_start_of_a_kernel() -> None:
    line = Line("mlp", "gelu", Work.of_flops(10, bytes_read=16e9, bytes_written=16e9), "pointwise")
    assert line_s(line, A100) == pytest.approx(32e9 / 1.6e12 + 4e-6)


def test_fused_attention_counts_the_pairs_that_the_mask_lets_through() -> None:
    work = Work(flops_full=2e12, flops_exact=1e12, flops_executed=2e12, bytes_read=1, bytes_written=1)
    shape = (("b", 1), ("queries", 2880), ("keys", 2880))
    forward = Line("core", "attention", work, "attention", number_format="bf16", shape=shape)
    assert line_s(forward, A100) == pytest.approx(1e12 / (160e12 * 2880 / (2880 + 320)) + 4e-6)


def test_fused_attention_multiplies_the_scores_again_in_its_backward_kernel() -> None:
    """The published backward rates count five products, 2.5 times the forward pass's; the model's own are four."""
    work = Work(flops_full=4e12, flops_exact=2e12, flops_executed=5e12, bytes_read=1, bytes_written=1)
    shape = (("b", 1), ("queries", 2880), ("keys", 2880), ("head_size", 128), ("value_head_size", 128))
    backward = Line("core", "attention_backward", work, "attention", "backward", number_format="bf16", shape=shape)
    rate = A100.attention_flops_per_s[1] * 2880 / (2880 + 320)
    assert line_s(backward, A100) == pytest.approx(2.5 * 1e12 / rate + 4e-6)


def test_a_product_over_written_scores_runs_all_pairs() -> None:
    """Megatron's batched products know nothing of the mask that comes after them, and run as matrix products do."""
    full = 2 * 96 * 2048 * 2048 * 128
    work = Work(flops_full=full, flops_exact=full / 2, flops_executed=full, bytes_read=1, bytes_written=1)
    shape = (("b", 96), ("m", 2048), ("n", 2048), ("k", 128))
    scores = Line("core", "attention_scores", work, "attention", number_format="bf16", shape=shape)
    product = Line("core", "matmul", work, "matmul", number_format="bf16", shape=shape)
    assert line_s(scores, A100) == line_s(product, A100)


def test_small_heads_are_slower() -> None:
    """With heads of 64 a kernel reaches 0.9 of its rate here."""
    work = Work(flops_full=2e12, flops_exact=1e12, flops_executed=2e12, bytes_read=1, bytes_written=1)
    sizes = (("b", 1), ("queries", 2880), ("keys", 2880))
    large, small = (
        line_s(Line("core", "attention", work, "attention", shape=(*sizes, ("head_size", size))), A100)
        for size in (128, 64)
    )
    assert small is not None
    assert large is not None
    assert (small - 4e-6) * 0.9 == pytest.approx(large - 4e-6)


def test_unknown_stays_unknown() -> None:
    assert line_s(Line("a", "b", Work(flops_full=None), "unknown"), A100) is None
    product = Line("a", "matmul", Work.of_flops(1, bytes_read=1), "matmul", number_format="fp8")
    assert line_s(product, A100) is None
