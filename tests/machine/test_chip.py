import pytest

from torchledger.machine import NUMBER_FORMATS, NoPeak, UnknownFact, get
from torchledger.machine.chip import rate_format


def test_the_h100_peak_is_the_dense_one():
    """1,979 is the figure with 2:4 sparsity; a peak is dense."""
    h100 = get("h100")
    assert h100.peak("bf16") == 989.4e12
    assert h100.peak_row("bf16").sparse_flops_per_s == 2 * 989.4e12


def test_the_dense_peak_follows_from_clock_and_units():
    """H100: 1830 MHz x 528 tensor cores x 512 FMA x 2; A100: 1410 MHz x 432 x 256 FMA x 2."""
    assert get("h100").peak("bf16") == pytest.approx(1830e6 * 528 * 512 * 2, rel=1e-3)
    assert get("a100").peak("bf16") == pytest.approx(1410e6 * 432 * 256 * 2, rel=1e-3)


def test_the_lecture_value_stands_beside_the_datasheet_value():
    """1979e12 / 2 = 989.5e12 is in print too, and the row says who prints it."""
    quoted = [each for each in get("h100").quoted if each.what == "dense.bf16"]
    assert [each.value for each in quoted] == [1979e12 / 2]


@pytest.mark.parametrize("word", ["bf16", "BF16", "bfloat16", "torch.bfloat16"])
def test_a_number_format_has_several_names(word):
    """Torch's and the paper's words for a format find the same peak."""
    assert get("a100").peak(word) == 312e12


@pytest.mark.parametrize("word", ["fp8", "fp8_e4m3", "FP8 E5M2", "torch.float8_e4m3fn", "mxfp8"])
def test_fp8_formats_run_at_one_rate(word):
    """E4M3 and E5M2 share a peak."""
    assert get("h100").peak(word) == 1978.9e12


def test_every_format_names_itself():
    """The catalog's own words are fixed points."""
    assert [rate_format(fmt) for fmt in NUMBER_FORMATS] == list(NUMBER_FORMATS)


def test_a_v100_has_no_bf16():
    """A format the chip cannot run is an error that says so and lists those it can."""
    with pytest.raises(NoPeak, match=r"V100 SXM2 32GB does not run bf16; it has fp32, fp16, int8") as caught:
        get("v100").peak("bfloat16")
    assert caught.value.has == ("fp32", "fp16", "int8")


def test_an_unknown_peak_names_the_row():
    """Where the row does not say, the error does not claim that the chip cannot."""
    with pytest.raises(NoPeak, match=r"no peak for fp64 is known of H100 SXM \(nvidia_hopper.toml\)"):
        get("h100").peak("fp64")


def test_memory_is_told_nominal_and_reported():
    """An 80 GB H100 is sold as 80e9 bytes and reports 81,559 MiB."""
    h100 = get("h100")
    assert h100.memory_bytes_nominal == 80 * 10**9
    assert h100.memory_bytes_reported == 81559 * 2**20
    assert h100.memory_bandwidth == 3.35e12


def test_an_unknown_fact_is_none_and_asking_for_it_names_the_row():
    """Unknown is never zero: the error says which field of which row of which file."""
    a6000 = get("a6000")
    assert a6000.network is None
    with pytest.raises(UnknownFact, match=r"network.* of RTX A6000 is unknown: the row in nvidia_ampere.toml"):
        a6000.known_network()
    xeon = get("xeon 8480+")
    with pytest.raises(UnknownFact, match=r"memory\.bytes_nominal"):
        xeon.known_memory_bytes()
    with pytest.raises(UnknownFact, match="link"):
        xeon.known_scale_up()
    with pytest.raises(UnknownFact, match=r"memory\.bytes_per_s"):
        get("generic avx2 core").known_memory_bandwidth()


def test_known_facts_come_back_as_they_are():
    """Asking for what is known gives the field itself."""
    h100 = get("h100")
    assert h100.known_memory_bytes() == h100.memory_bytes_nominal
    assert h100.known_memory_bandwidth() == h100.memory_bandwidth
    assert h100.known_network().bytes_per_s_per_direction == 400e9 / 8


def test_an_mi300x_pair_is_slow_where_eight_are_fast():
    """Infinity Fabric gives one peer 64 of the 448 GB/s: seven peers together."""
    link = get("mi300x").known_scale_up()
    assert link.bytes_per_s_per_peer == 64e9
    assert link.bytes_per_s_per_direction == 7 * 64e9


def test_no_latency_is_made_up():
    """No row has a source for a latency, so all are unknown."""
    assert get("h100").known_scale_up().latency_s is None


def test_consumer_cards_cannot_talk_to_each_other():
    """An RTX 4090 has no peer to peer access; of an RTX 3090 nothing is said."""
    assert get("4090").known_scale_up().peer_to_peer is False
    assert get("3090").known_scale_up().peer_to_peer is None
