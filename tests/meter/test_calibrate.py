"""Calibration: figures are finite, ordered and labelled; no assertion on how fast."""

import torch

from torchledger.machine.profile import MachineProfile
from torchledger.meter.calibrate import best_s, calibrate


def test_a_profile_has_every_figure():
    """Each format has one point a size in rising size, and every rate is positive."""
    told = []
    profile = calibrate(
        torch.device("cpu"), formats=("fp32",), budget_s=0.05, on_progress=lambda *step: told.append(step)
    )
    points = profile.matmul["fp32"]
    assert [flops for flops, _ in points] == [2 * size**3 for size in (32, 64, 128, 256, 512, 1024, 2048)]
    assert all(rate > 0 for _, rate in points)
    assert profile.peak("fp32") == max(rate for _, rate in points)
    assert profile.peak("fp8_e4m3") is None
    sizes = [size for size, _ in profile.bandwidth]
    assert sizes == sorted(sizes)
    assert all(rate > 0 for _, rate in profile.bandwidth)
    assert profile.in_place_bytes_per_s > 0
    assert profile.operation_s > 0
    assert profile.num_threads == torch.get_num_threads()
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    assert MachineProfile.from_json(profile.to_json()) == profile


def test_an_fp8_product_on_a_cpu_is_timed_at_small_sizes():
    """Two small sizes tell the rate of FP8's kernel there, which is less than a twentieth of FP32's best."""
    profile = calibrate(torch.device("cpu"), formats=("fp32", "fp8"), budget_s=0.05)
    assert [flops for flops, _ in profile.matmul["fp8"]] == [2 * 32**3, 2 * 64**3]
    assert 20 * profile.peak("fp8") < profile.peak("fp32")


def test_best_is_the_shortest_and_runs_at_least_as_often_as_asked():
    """One run to warm up, then at least `least` timed ones even on an empty budget."""
    runs = []
    assert best_s(lambda: runs.append(1), torch.device("cpu"), 0.0, least=4) >= 0
    assert len(runs) == 1 + 4
