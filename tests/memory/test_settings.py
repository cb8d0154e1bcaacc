"""The options of the allocator. Rules: c10/core/AllocatorConfig.cpp and c10/cuda/CUDAAllocatorConfig.cpp of PyTorch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.memory.settings import AllocatorSettings, AllocatorSettingsError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PARSE = AllocatorSettings.parse


def test_no_text_is_the_defaults_of_pytorch():
    settings = PARSE("")
    assert settings == AllocatorSettings()
    assert (settings.expandable_segments, settings.max_split_bytes, settings.memory_fraction) == (False, None, 1.0)
    assert settings.large_segment_bytes == settings.max_non_split_rounding_bytes == 20 * MIB


def test_every_option_is_read_and_spaces_count_for_nothing():
    settings = PARSE(
        " expandable_segments : True, max_split_size_mb:128, max_non_split_rounding_mb:32,"
        "garbage_collection_threshold:0.8, per_process_memory_fraction:0.5, pinned_use_background_threads:True"
    )
    assert settings.expandable_segments
    assert settings.max_split_bytes == 128 * MIB
    assert settings.max_non_split_rounding_bytes == 32 * MIB
    assert settings.garbage_collection_threshold == 0.8
    assert settings.memory_fraction == 0.5
    assert settings.ignored == ("pinned_use_background_threads",)


def test_the_large_segment_is_read_first_and_is_the_default_and_the_least_of_others():
    """`parseArgs`: large_segment_size_mb first, then max_non_split_rounding_size_ = large_segment_size_."""
    settings = PARSE("max_split_size_mb:30,large_segment_size_mb:30")
    assert settings.max_non_split_rounding_bytes == 30 * MIB
    with pytest.raises(AllocatorSettingsError, match="max_split_size_mb must be at least 30, not '29'"):
        PARSE("max_split_size_mb:29,large_segment_size_mb:30")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_split_size_mb:19", "max_split_size_mb must be at least 20, not '19'"),
        ("max_non_split_rounding_mb:5", "max_non_split_rounding_mb must be at least 20, not '5'"),
        ("large_segment_size_mb:10", "large_segment_size_mb must be more than 10, not '10'"),
        ("expandable_segments:true", "expandable_segments must be True or False, not 'true'"),
        ("garbage_collection_threshold:1", "between 0 and 1, both excluded, not '1'"),
        ("garbage_collection_threshold:much", "must be a number, not 'much'"),
        ("per_process_memory_fraction:1.5", "must be from 0 to 1, not '1.5'"),
        ("roundup_power2_divisions:3", "must be powers of two"),
        ("roundup_power2_divisions:[256:3]", "must be powers of two"),
        ("roundup_power2_divisions:[256]", "a list like"),
        ("backend:cudaMallocAsync", "backend must be native, the one backend that is modelled"),
        ("expandable_segment:True", "no option 'expandable_segment'; did you mean expandable_segments?"),
        ("zzz:1", "no option 'zzz'; there are backend, expandable_segments"),
        ("expandable_segments", "expected options like name:value,name:value, found 'expandable_segments'"),
        ("max_split_size_mb:64;expandable_segments:True", "found"),
    ],
)
def test_a_wrong_text_names_the_option_and_what_it_may_be(text, message):
    with pytest.raises(AllocatorSettingsError) as error:
        PARSE(text)
    assert message in str(error.value)


def test_sizes_are_rounded_up_to_512_bytes():
    """`round_size`: at least kMinBlockSize, then multiples of it."""
    round_size = AllocatorSettings().round_size
    assert [round_size(n) for n in (1, 511, 512, 513, 1024)] == [512, 512, 512, 1024, 1024]


def test_sizes_are_rounded_up_to_divisions_of_powers_of_two():
    """`roundup_power2_next_division`: with 4 divisions the steps between 1 and 2 MiB are 256 KiB."""
    settings = PARSE("roundup_power2_divisions:4")
    assert settings.round_size(MIB + 1) == MIB + 256 * KIB
    assert settings.round_size(MIB + 256 * KIB) == MIB + 256 * KIB
    assert settings.round_size(2 * MIB) == 2 * MIB
    assert settings.round_size(3 * GIB + 1) == 3 * GIB + GIB // 2
    assert settings.round_size(512 * 4) == 2048, "up to 512 x divisions it is multiples of 512"
    assert settings.round_size(1000) == 1024
    assert settings.round_size(2560 + 1) == 2048 + 1024, "below 1 MiB the first interval's divisor holds"


def test_one_division_rounds_to_512_alone():
    """One division or none leaves the size as it is: `roundup_power2_next_division` returns it unrounded."""
    settings = PARSE("roundup_power2_divisions:1")
    assert settings.round_size(5000) == 5000


def test_divisions_may_be_listed_by_interval_in_mebibytes():
    """`[256:1,512:2,1024:4,>:8]`: the first holds below, `>` above the last, 0 is off."""
    settings = PARSE("roundup_power2_divisions:[256:2,512:4,1024:8,>:16]")
    assert settings.roundup_power2_divisions == (2,) * 9 + (4, 8) + (16,) * 5
    assert settings.divisions_at(256 * MIB) == 2
    assert settings.divisions_at(512 * MIB) == 4
    assert settings.divisions_at(1500 * MIB) == 8
    assert settings.divisions_at(100 * GIB) == 16
    assert settings.divisions_at(1) == 2
    assert PARSE("roundup_power2_divisions:[64:0,>:2]").divisions_at(64 * MIB) == 0


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (GIB + 1024, GIB + 2 * MIB),
    ],
)
def test_segments_have_the_sizes_of_get_allocation_size(size, segment):
    """Up to 1 MiB 2 MiB; below 10 MiB 20 MiB; then the request, rounded up to 2 MiB."""
    assert AllocatorSettings().segment_size(size) == segment


def test_the_large_segment_can_be_set():
    assert PARSE("large_segment_size_mb:64").segment_size(2 * MIB) == 64 * MIB


@given(st.integers(1, 1 << 42), st.sampled_from([0, 1, 2, 4, 8, 16, 64]))
def test_a_rounded_size_holds_the_request(num_bytes, divisions):
    text = f"roundup_power2_divisions:{divisions}" if divisions else ""
    size = PARSE(text).round_size(num_bytes)
    assert size >= num_bytes
    assert size - num_bytes < max(512, num_bytes)
