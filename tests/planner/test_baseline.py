"""Baselines know FLOPs and other people's rows, and never the row that they are tried on."""

from dataclasses import replace

import pytest

from torchledger.formula import num_parameters
from torchledger.machine import parse_cluster
from torchledger.planner.baseline import (
    Regression,
    TypicalMfu,
    constant_mfu,
    flops_of,
    leave_family_out,
    matmul_format,
    peak_s,
)
from torchledger.planner.measured import MeasuredRow
from torchledger.spec import Recipe, Strategy, presets


def _row(step_s=1.0, *, model="llama-2-7b", cluster="a100x8", source="a", family="a", **recipe):
    return MeasuredRow(
        spec=presets.get(model),
        recipe=replace(Recipe(batch_size=8, sequence_length=2048, precision="bf16-master"), **recipe),
        strategy=Strategy(stack="megatron", data_parallel=8, micro_batch_size=1),
        cluster=parse_cluster(cluster),
        step_s=step_s,
        peak_bytes=None,
        is_out_of_memory=False,
        source=source,
        family=family,
        quality="A",
        assumed=(),
    )


def test_model_flops_are_six_n_and_causal_attention():
    """Llama 2 7B: (6·(N - V·D) + 6·L·T·D) a token, with N = 6,738,415,616, V·D = 32,000·4096."""
    row = _row()
    n = num_parameters(row.spec) - 32_000 * 4096
    assert flops_of(row) == (6 * n + 6 * 32 * 2048 * 4096) * 8 * 2048


def test_adapters_save_the_weight_gradients():
    """LoRA: 4 FLOPs a parameter and token instead of 6; attention is as before."""
    row = _row()
    n = num_parameters(row.spec) - 32_000 * 4096
    saved = 2 * n * 8 * 2048
    assert flops_of(_row(lora_rank=8)) == flops_of(row) - saved


def test_a_constant_mfu_divides_the_peak():
    """Half the MFU takes twice the time."""
    assert constant_mfu(0.4)(_row()) == peak_s(_row()) / 0.4


def test_the_peak_is_that_of_the_products_format():
    """FP8 runs at the FP8 peak: half the seconds on an H100, whose FP8 peak is 1978.9 to 989.4."""
    wide, narrow = _row(cluster="h100x8"), _row(cluster="h100x8", precision="fp8")
    assert peak_s(wide) / peak_s(narrow) == pytest.approx(1978.9 / 989.4, rel=1e-3)
    assert matmul_format("fp16-master") == "fp16"


def test_the_typical_mfu_gives_every_source_one_voice():
    """MFUs 0.5 (three rows of a), 0.3 (b) and 0.2 (c): the median of the sources is 0.3."""
    full = peak_s(_row())
    rows = [*(_row(full / 0.5) for _ in range(3)), _row(full / 0.3, source="b"), _row(full / 0.2, source="c")]
    assert TypicalMfu.of(rows)(_row()) == pytest.approx(full / 0.3)


def test_a_chip_that_nobody_measured_takes_the_formats_mfu():
    """Only A100 rows at MFU 0.25: an H100 is guessed at 0.25 too, and FP8 at the napkin's 0.4."""
    guess = TypicalMfu.of([_row(peak_s(_row()) / 0.25)])
    other = _row(cluster="h100x8")
    assert guess(other) == pytest.approx(peak_s(other) / 0.25)
    eighth = _row(cluster="h100x8", precision="fp8")
    assert guess(eighth) == pytest.approx(peak_s(eighth) / 0.4)


def test_the_line_learns_what_its_features_say():
    """Where full recompute costs 4/3 in every other row, it does in the next."""
    rows = [
        _row(peak_s(each) / 0.4 * (4 / 3 if recompute == "full" else 1), batch_size=batch, recompute=recompute)
        for batch in (8, 16, 32, 64)
        for recompute in ("none", "full")
        for each in [_row(batch_size=batch)]
    ]
    line = Regression.of(rows)
    assert line(_row(recompute="full")) / line(_row()) == pytest.approx(4 / 3, rel=0.05)


def test_a_row_never_helps_to_predict_its_own_family():
    """Family a has MFU 0.9, family b 0.3: a is guessed at 0.3 and b at 0.9."""
    full = peak_s(_row())
    rows = [_row(full / 0.9, family="a"), _row(full / 0.3, source="b", family="b")]
    guess = leave_family_out(rows, TypicalMfu.of)
    assert guess(rows[0]) == pytest.approx(full / 0.3)
    assert guess(rows[1]) == pytest.approx(full / 0.9)
