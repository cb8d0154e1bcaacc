"""Facts of the machine at hand, against what the system tells by other ways."""

import mmap
import os

import psutil
import pytest
import torch

from torchledger.meter.device import DeviceError, facts, resident_bytes, resolve


def test_auto_is_a_device_that_can_hold_a_tensor():
    """Whatever `auto` resolves to can hold a tensor."""
    assert torch.ones(1, device=resolve("auto")).sum().item() == 1


def test_a_device_that_is_not_there_is_an_error():
    """Asking for a missing device names it and what to use instead."""
    missing = "mps" if not torch.backends.mps.is_available() else "cuda"
    with pytest.raises(DeviceError, match=f"'{missing}' is not available"):
        resolve(missing)


def test_an_unknown_device_is_an_error():
    """A device nobody knows is refused with the choices."""
    with pytest.raises(DeviceError, match="choose auto, cpu, cuda or mps"):
        resolve("tpu9")


def test_the_facts_of_the_cpu():
    """Cores are those this process may use; free memory is positive and within the total."""
    told = facts(torch.device("cpu"))
    assert told.kind == "cpu"
    assert told.name
    assert 1 <= told.num_cores <= os.cpu_count()
    assert 0 < told.free_bytes <= told.total_bytes <= psutil.virtual_memory().total


def test_resident_memory_grows_with_what_is_touched():
    """Touching 64 MiB of new pages makes resident memory grow by about as much."""
    size_bytes = 64 * 2**20
    before = resident_bytes()
    with mmap.mmap(-1, size_bytes) as block:  # pages of our own: the heap may hand out some that were touched before
        block.write(b"\1" * size_bytes)
        assert resident_bytes() - before > 48 * 2**20
