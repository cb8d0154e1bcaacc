import pytest


def test_a_small_number_is_zero_in_fp16_and_not_in_bf16(ask):
    """1e-8 is below half of FP16's smallest subnormal and far above BF16's."""
    rows = {row["format"]: row for row in ask("format", "1e-8", "--json").json["answer"]}
    assert rows["FP16"]["value"] == 0
    assert rows["BF16"]["value"] == pytest.approx(1e-8, rel=2**-8)
    shown = ask("format", "1e-8").out
    assert "rounds to zero" in shown


def test_a_format_is_drawn(ask):
    """Its bits are drawn, its range and source are told."""
    out = ask("format", "bf16").out
    assert "│s│eeeeeeee│mmmmmmm│" in out
    assert "3.38953139e+38" in out
    assert "source" in out


def test_all_formats_are_listed(ask):
    """Without a name, one row each."""
    rows = ask("format", "--json").json["answer"]
    assert {"FP32", "TF32", "FP16", "BF16", "FP8_E4M3", "FP8_E5M2"} <= {row["name"] for row in rows}
    assert all(row["name"] in ask("format").out for row in rows)


def test_the_bytes_of_a_tensor(ask):
    """49,152 × 12,288 elements of two bytes."""
    answer = ask("format", "tensor", "49152", "12288", "--json").json["answer"]
    assert answer["bytes"]["BF16"] == 49152 * 12288 * 2


def test_a_negative_number_is_no_option(ask):
    """-1.5 is a number, although it starts with a dash."""
    assert ask("format", "-1.5", "--dtype", "fp16", "--json").json["answer"][0]["value"] == -1.5


def test_only_the_formats_that_were_asked_for(ask):
    """`--dtype` narrows the table."""
    rows = ask("format", "65520", "--dtype", "fp16", "--json").json["answer"]
    assert [(row["format"], row["value"]) for row in rows] == [("FP16", None)]  # infinity, which JSON does not have
    assert "becomes infinity" in ask("format", "65520", "--dtype", "fp16").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("foo",), "neither a format nor a number"),
        (("1", "2"), "one number or one format"),
        (("tensor", "3.5"), "cannot read '3.5'"),
        (("1", "--dtype", "fp12"), "unknown number format"),
    ],
)
def test_nonsense_is_wrong_usage(ask, words, message):
    """What is neither a format nor a number says both."""
    answer = ask("format", *words)
    assert answer.code == 2
    assert message in answer.err


def test_a_shape_may_be_written_in_one_word(ask):
    """`49152x12288` is two sizes: 49,152 · 12,288 · 4 bytes = 2.25 GiB."""
    answer = ask("format", "tensor", "49152x12288", "--dtype", "fp32", "--json").json["answer"]
    assert answer["bytes"] == {"FP32": 49_152 * 12_288 * 4}
    assert 49_152 * 12_288 * 4 == 2304 * 2**20
