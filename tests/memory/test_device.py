from itertools import pairwise

from torchledger.memory.device import PlainDevice


def test_a_device_gives_what_it_has_and_no_more():
    device = PlainDevice(capacity_bytes=10)
    first = device.allocate(6)
    assert first is not None
    assert device.allocate(5) is None
    assert device.free_bytes == 10 - 6
    device.release(first, 6)
    assert device.allocate(10) is not None


def test_addresses_ascend_and_never_overlap():
    device = PlainDevice()
    addresses = [device.reserve_addresses(size) for size in (1, 3 << 21, 5)]
    assert addresses == sorted(addresses)
    assert addresses[2] - addresses[1] >= 3 << 21
    assert device.free_bytes is None


def test_a_seed_draws_another_order_of_addresses_and_none_overlap():
    """The same seed draws the same order."""
    first, again = PlainDevice(seed=1), PlainDevice(seed=1)
    addresses = [first.reserve_addresses(1 << 30) for _ in range(50)]
    assert addresses == [again.reserve_addresses(1 << 30) for _ in range(50)]
    ordered = sorted(addresses)
    assert ordered != addresses
    assert all(high - low >= 1 << 30 for low, high in pairwise(ordered))
