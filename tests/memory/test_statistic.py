from torchledger.memory.statistic import AllocatorStatistics, Statistic


def test_the_peak_is_the_most_since_it_was_reset():
    held = Statistic()
    for change, current, peak in ((5, 5, 5), (-3, 2, 5), (1, 3, 5), (4, 7, 7)):
        held.add(change)
        assert (held.current, held.peak) == (current, peak)
    held.add(-6)
    held.reset_peak()
    assert (held.current, held.peak) == (1, 1)


def test_all_peaks_are_reset_together():
    statistics = AllocatorStatistics()
    for each in (statistics.allocated, statistics.reserved, statistics.inactive_split):
        each.add(10)
        each.add(-10)
    statistics.reset_peaks()
    assert statistics.allocated.peak == statistics.reserved.peak == statistics.inactive_split.peak == 0
