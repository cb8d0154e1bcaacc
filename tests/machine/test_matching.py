import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.machine import UnknownChip, get, list_chips, match, parse_cluster
from torchledger.machine.index import names_of


@pytest.mark.parametrize(
    ("name", "bf16_tflops"),
    [
        ("L4", 121),
        ("L40", 181),
        ("L40S", 362),
        ("NVIDIA L40S", 362),
        ("A10", 125),
        ("A100", 312),
        ("H100 NVL", 835.5),
        ("H200", 989.4),
        ("GB200", 2500),
        ("B200", 2250),
        ("H20", 148),
    ],
)
def test_names_inside_names_are_told_apart(name, bf16_tflops):
    """The traps of published peak tables: L4 in L40S, A10 in A100, H20 in H200, B200 in GB200."""
    assert get(name).peak("bf16") == bf16_tflops * 1e12


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA RTX 6000 Ada Generation",
        "NVIDIA A100X",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "GRID A100-40C",
        "AMD H100",
        "H100 SXM 94GB",
        "Tesla P100-PCIE-16GB",
        "AMD Instinct MI300A",
        "AMD EPYC",
        "AMD EPYC 9654P 96-Core Processor",
        "AMD EPYC 9554 64-Core Processor",
        "AMD EPYC 9654 64-Core Processor",
        "Intel(R) Xeon(R) Platinum 8480C",
        "Intel(R) Xeon(R) CPU @ 2.00GHz",
        "",
        "GPU",
    ],
)
def test_a_name_with_an_unexplained_word_is_another_chip(name):
    """What nobody can explain is unknown, never the nearest chip."""
    assert match(name) is None
    with pytest.raises(UnknownChip):
        get(name)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Intel(R) Xeon(R) Platinum 8480+", "xeon-platinum-8480plus"),
        ("AMD EPYC 9654 96-Core Processor", "epyc-9654"),
        ("Apple M1", "apple-m1"),
        ("Apple M1 Max", "apple-m1-max"),
    ],
)
def test_a_processor_is_matched_by_its_exact_model(name, key):
    """The model name that the operating system gives finds that model's row."""
    found = match(name)
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize(
    ("gib", "key"), [(79.1, "h100-sxm"), (95.04, "h100-sxm-96gb-hbm2e"), (93.1, None), (139.8, None), (47.5, None)]
)
def test_the_reported_memory_tells_chips_of_one_name_apart(gib, key):
    """An "NVIDIA H100" with 95.04 GiB is the 96 GB part; 93.1 GiB could be two parts and 47.5 none (a MIG slice)."""
    found = match("NVIDIA H100", int(gib * 2**30))
    assert (found and found.key) == key


def test_the_reported_memory_is_checked_even_for_a_full_name():
    """A MIG slice has the whole device's name and a part of its memory: it is no H100."""
    assert match("NVIDIA H100 80GB HBM3", 10 * 2**30) is None
    assert match("NVIDIA H100 80GB HBM3", 81559 * 2**20) == get("h100")


def test_a_device_that_is_half_a_chip_reports_half_the_memory():
    """MI250X shows as two devices of 64 GB each."""
    assert match("AMD Instinct MI250X", 64 * 2**30) == get("mi250x")
    assert match("AMD Instinct MI250X", 128 * 2**30) is None


def test_unified_memory_comes_in_many_sizes():
    """An M1 with 8 GB is an M1, though its row has the largest size."""
    assert match("Apple M1", 8 * 2**30) == get("m1")


def test_a_family_name_with_a_memory_size_finds_the_variant():
    """A size may pick the variant when only one has it."""
    assert get("H100 94 GB").key == "h100-nvl"
    assert get("GH200 144GB").key == "gh200-144gb"


def test_an_ambiguous_name_lists_its_candidates():
    """39 GiB fit both 40 GB A100s, so the answer is which ones, not one of them."""
    with pytest.raises(UnknownChip, match=r"fits several chips: A100 SXM 40GB, A100 PCIe 40GB"):
        get("A100 39 GiB")


def test_an_unknown_name_says_what_is_close_and_how_to_add_a_row():
    """The message helps on: near names, and the way to write one's own row."""
    with pytest.raises(UnknownChip, match=r"'h1000'.*close names: .*h100-sxm.*--catalog FILE") as caught:
        get("h1000")
    assert caught.value.name == "h1000"
    assert "h100-sxm" in caught.value.close


@pytest.mark.parametrize("chip", list_chips(), ids=lambda chip: chip.key)
def test_every_name_of_every_row_finds_its_row(chip):
    """Keys, names and aliases all come home, in any case and with the vendor's name before them."""
    for name in names_of(chip):
        assert get(name) == chip
        assert get(name.upper()) == chip
        assert match(f"{chip.vendor} {name}") == chip


@given(st.sampled_from(list_chips()), st.text("jqwyz", min_size=1, max_size=6))
def test_no_made_up_word_is_passed_over(chip, word):
    """A word that says nothing true makes any name unknown (no word of the trade is spelled with these letters)."""
    assert match(f"{chip.name} {word}") is None
    assert match(f"{word} {chip.key}") is None


@pytest.mark.parametrize("name", ["hé100", "he\u0301100", "h\u0301100", "日h100", "日 h100", "中文h100-sxm", "🚀h100"])
def test_letters_of_other_alphabets_are_letters(name):
    """A name with a letter that no chip's name has is no chip's; signs of a trademark and dashes say nothing."""
    assert match(name) is None
    with pytest.raises(UnknownChip):
        parse_cluster(f"{name}x8")
    assert match("NVIDIA® H100–SXM™") == match("h100-sxm")
    assert parse_cluster("8×h100").num_chips == 8


@pytest.mark.parametrize("name", ["h!100", "h100'", "h100;", "a100=80gb", "h100~sxm"])
def test_signs_that_are_in_no_name_are_not_passed_over(name):
    """A mistyped sign is a part of the word it is in, which no chip has; the error says which names are close."""
    assert match(name) is None
    with pytest.raises(UnknownChip, match=r"close names: .*100"):
        parse_cluster(f"{name}x8")
