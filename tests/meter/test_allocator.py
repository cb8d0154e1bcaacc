"""The allocator's truth, against sizes that can be added up by hand."""

import os

import torch

from torchledger.meter.allocator import allocations, quiet


def test_the_peak_is_the_largest_sum_of_bytes_alive():
    """Two tensors of 4,096 bytes alive together, one freed, then one of 2,048: peak 8,192, end 6,144."""
    kept = []

    def run():
        a = torch.empty(1024)
        kept.append(torch.empty(1024))
        del a
        kept.append(torch.empty(512))

    seen = allocations(run)
    assert seen.peak_bytes == 4096 + 4096
    assert seen.end_bytes == 4096 + 2048
    assert seen.num_allocations == 3


def test_frees_of_older_memory_do_not_count():
    """Freeing what was there before the window leaves the sum alone."""
    old = [torch.empty(1 << 20)]
    seen = allocations(lambda: (old.clear(), torch.empty(256))[0])
    assert seen.peak_bytes == 256 * 4
    assert seen.end_bytes == 0


def test_the_result_comes_back():
    """What the function returns is handed on."""
    assert allocations(lambda: "answer").result == "answer"


def test_kernel_scratch_is_seen():
    """A sort needs more than its two outputs of 8,000 and 16,000 bytes: the kernel's own buffers are in the peak."""
    values = torch.arange(2000.0).reshape(2000, 1).t().contiguous().t()
    seen = allocations(lambda: torch.sort(values, dim=0))
    assert seen.end_bytes == 2000 * 4 + 2000 * 8 or seen.end_bytes == 0
    assert seen.peak_bytes >= 2000 * 4 + 2000 * 8


def test_a_counter_never_prints(capfd):
    """Profiling writes nothing to standard error, although torch's profiler does."""
    allocations(lambda: torch.empty(4))
    assert capfd.readouterr() == ("", "")


def test_other_lines_pass(capfd):
    """What others write to standard error meanwhile is not lost."""
    with quiet():
        os.write(2, b"USDT: noise\nsomebody else\n")
    assert capfd.readouterr().err == "somebody else\n"
