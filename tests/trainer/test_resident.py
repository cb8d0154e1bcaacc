import torch

from torchledger.trainer.resident import ResidentGauge, peak_resident_bytes, resident_bytes


def test_memory_that_is_written_is_resident_and_stays_in_the_peak():
    """Writing 64 MiB raises what is resident by about as much; freeing it lowers that, not the peak."""
    before = resident_bytes()
    block = torch.ones(2**26, dtype=torch.uint8)
    during = resident_bytes()
    assert during - before > 0.9 * block.numel()
    del block
    assert resident_bytes() - before < 0.1 * 2**26
    assert peak_resident_bytes() - before > 0.9 * 2**26


def test_a_gauge_reads_again_only_after_a_quarter_of_a_second(monkeypatch):
    """Within a quarter of a second the last figures stand; then they are read anew, and the peak has missed nothing."""
    clock = [100.0]
    monkeypatch.setattr("torchledger.trainer.resident.time.monotonic", lambda: clock[0])
    gauge = ResidentGauge()
    first = gauge.read()
    block = torch.ones(2**26, dtype=torch.uint8)
    clock[0] += 0.24
    assert gauge.read() is first
    del block
    clock[0] += 0.01
    later = gauge.read()
    assert later is not first
    assert later.now - first.now < 0.1 * 2**26
    assert later.peak - first.now > 0.9 * 2**26
