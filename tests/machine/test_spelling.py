import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.machine import get
from torchledger.machine.spelling import could_report, explains, joined, splits, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Tesla V100-SXM2-32GB", ("tesla", "v100", "sxm2", "32gb")),
        ("NVIDIA A100 80 GB", ("nvidia", "a100", "80gb")),
        ("A100-80G", ("a100", "80gb")),
        ("T4 14.56 GiB", ("t4", "14.56gib")),
        ("16 GB200", ("16", "gb200")),
        ("AMD EPYC 9654 96-Core Processor", ("amd", "epyc", "9654", "96core", "processor")),
        ("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", ("intel", "xeon", "cpu", "e5", "2680", "v4")),
        ("", ()),
    ],
)
def test_a_name_is_read_as_words(text, expected):
    """Sizes and core counts are one word; marks and clocks are none."""
    assert words(text) == expected


@given(st.lists(st.text("abcdefhijklmnpqrstuvwxyz", min_size=1, max_size=4), min_size=1, max_size=5))
def test_what_stands_between_words_does_not_matter(parts):
    """Spaces, dashes, underscores and nothing at all join a name alike."""
    assert joined(" ".join(parts)) == joined("-".join(parts)) == joined("_".join(parts)) == "".join(parts)


@pytest.mark.parametrize(
    ("rest", "explained"),
    [
        (("nvidia", "gpu"), True),
        (("80gb",), True),
        (("80gib",), True),
        (("79.6gib",), True),
        (("81gib",), False),
        (("40gb",), False),
        (("hbm3",), True),
        (("hbm2e",), False),
        (("sxm5",), True),
        (("sxm",), True),
        (("pcie",), False),
        (("700w",), True),
        (("500w",), False),
        (("amd",), False),
        (("laptop",), False),
    ],
)
def test_a_word_is_explained_when_it_is_true_of_the_chip(rest, explained):
    """Memory, its kind, the form factor and the power of an H100 SXM; its vendor's words; nothing else."""
    assert explains(get("h100"), rest) is explained


def test_a_driver_reports_at_most_the_printed_number_of_gib():
    """80 GB shows as 72 to 80 GiB."""
    h100 = get("h100")
    assert could_report(h100, 80 * 2**30)
    assert could_report(h100, 0.9 * 80 * 2**30)
    assert not could_report(h100, 80 * 2**30 + 1)
    assert not could_report(h100, 0.89 * 80 * 2**30)


def test_a_processor_may_have_any_memory():
    """A CPU's row says nothing of the memory around it."""
    assert could_report(get("grace"), 2**30)


def test_a_plain_name_has_no_count():
    """Without a count there is nothing to split."""
    assert list(splits("h100")) == []
