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


def test_a_ladder_of_neighbours(ask):
    """Three numbers of BF16 on each side of the one nearest to 1e-8."""
    answer = ask("format", "1e-8", "--ladder", 3, "--dtype", "bf16", "--json").json["answer"]
    assert [rung["steps"] for rung in answer["ladders"]["BF16"]] == [-3, -2, -1, 0, 1, 2, 3]
    assert answer["formats"][0]["value"] == answer["ladders"]["BF16"][3]["value"]
    assert "BF16 around 1e-8" in ask("format", "1e-8", "--ladder", 1, "--dtype", "bf16").out


def test_bits_are_drawn_where_few_formats_are_asked_for(ask):
    """Below the table of one format its bits stand in boxes; twenty formats would be twenty drawings."""
    assert "│0│01100100│0101100│" in ask("format", "1e-8", "--dtype", "bf16").out
    assert "│" not in ask("format", "1e-8").out


def test_rounding_overflow_and_random_numbers_are_heard(ask):
    """70,000 is cut toward zero and under saturation; 1.25 in FP4 goes up if the random number is below a half."""

    def value(*words):
        return ask("format", *words, "--json").json["answer"][0]["value"]

    assert value("70000", "--dtype", "fp16", "--rounding", "toward-zero") == 65504
    assert value("70000", "--dtype", "fp16", "--overflow", "saturate") == 65504
    assert value("1.25", "--dtype", "fp4", "--rounding", "stochastic", "--random", "0.49") == 1.5
    assert value("1.25", "--dtype", "fp4", "--rounding", "stochastic", "--random", "1/2") == 1


def test_odds_of_stochastic_rounding(ask):
    """Without a random number both outcomes are told with their probabilities."""
    row = ask("format", "0.3", "--rounding", "stochastic", "--dtype", "fp4", "--json").json["answer"][0]
    assert (row["near"], row["far"], row["probability_of_far"]) == (0, 0.5, 0.6)


def test_a_pattern_is_decoded(ask):
    """0x7bff in FP16 is 65,504, in BF16 another number."""
    rows = ask("format", "bits", "0x7bff", "--dtype", "fp16", "--dtype", "bf16", "--json").json["answer"]
    assert [(row["format"], row["bits"]) for row in rows] == [
        ("FP16", "0 11110 1111111111"),
        ("BF16", "0 11110111 1111111"),
    ]
    assert rows[0]["value"] == 65504
    assert rows[1]["value"] == (1 + 127 / 128) * 2.0 ** (0b11110111 - 127)
    assert ask("format", "bits", "0", "10", "1", "--dtype", "fp4").code == 0


def test_numbers_share_a_block(ask):
    """7 is cut to 6 under the specification's scale 1, and 8 under the one that cuts nothing."""
    answer = ask("format", "block", "1", "-7", "--dtype", "mxfp4", "--json").json["answer"][0]
    assert [value for block in answer["blocks"] for value in block["values"]] == [1, -6]
    shown = ask("format", "block", "1", "-7", "--dtype", "mxfp4", "--scale-rule", "ceil").out
    assert "-8" in shown
    assert len(ask("format", "block", "1", "--json").json["answer"]) == 7


def test_a_sum_of_ones_stops(ask):
    """4,096 ones in BF16 stop at 256 one by one."""
    rows = ask("format", "sum", "4096", "--dtype", "bf16", "--json").json["answer"]
    assert [(row["order"], row["accumulator"], row["value"]) for row in rows] == [
        ("sequential", "BF16", 256),
        ("pairwise", "BF16", 4096),
        ("sequential", "FP32", 4096),
    ]
    assert rows[0]["stalled_after"] == 256
    assert rows[0]["error"] == 256 - 4096
    assert "256" in ask("format", "sum", "4k", "--term", "1").out


def test_scales_are_counted_in_the_bytes_of_a_tensor(ask):
    """Half a byte and a 32nd of one for each of 64 · 64 elements."""
    answer = ask("format", "tensor", "64x64", "--dtype", "mxfp4", "--json").json["answer"]
    assert answer["bytes"] == {"MXFP4": 64 * 64 // 2 + 64 * 64 // 32}
    assert answer["scale_bytes"] == {"MXFP4": 64 * 64 // 32}


@pytest.mark.parametrize(
    "words",
    [
        ("1e-8", "--ladder", "2"),
        ("1e400", "--ladder", "2", "--dtype", "fp64"),
        ("bf16",),
        ("nvfp4",),
        (),
        ("nan",),
        ("tensor", "3x5"),
        ("bits", "0x1", "--dtype", "fp4"),
        ("block", "1", "2"),
        ("sum", "10"),
        ("0.3", "--rounding", "stochastic"),
    ],
)
def test_every_answer_has_a_page(ask, tmp_path, words):
    """`--html` writes one file beside the answer, and says so on stderr."""
    page = tmp_path / "page.html"
    answer = ask("format", *words, "--html", page)
    assert answer.code == 0, answer.err
    assert answer.out
    assert f"wrote {page}" in answer.err
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tensor", "3", "--ladder", "2", "--term", "1"), "--ladder, --term say nothing about the bytes of a tensor"),
        (("bf16", "--rounding", "up"), "--rounding says nothing about a format"),
        (("bits", "0x1"), "bits of which format? Add --dtype FORMAT"),
        (("bits", "--dtype", "fp4"), "bits of which pattern?"),
        (("bits", "0x1", "--dtype", "mxfp4"), "holds blocks of 32"),
        (("block",), "a block of which numbers?"),
        (("block", "1", "--dtype", "fp16"), "FP16 has no blocks"),
        (("block", "1", "--rounding", "stochastic"), "choose another --rounding"),
        (("sum",), "a sum of how many terms?"),
        (("sum", "0"), "at least 1 term"),
        (("sum", "4", "--term", "x"), "'x' is no number"),
        (("sum", "4", "--rounding", "stochastic"), "choose another --rounding"),
        (("sum", "4", "--dtype", "int8"), "INT8 is an integer format"),
        (("1", "--rounding", "stochastic", "--random", "2"), "at least 0 and below 1, not 2"),
        (("inf", "--ladder", "2", "--dtype", "fp16"), "has no neighbours"),
        (("1e-8", "--laddr", "3"), "no such option: --laddr"),
        (("bf16", "--dtype", "fp16"), "--dtype says nothing about a format"),
        (("tensor",), "a tensor of which sizes?"),
        (("1", "--rounding", "stochastic", "--overflow", "saturate"), "--overflow says nothing about the odds"),
        (("block", "1", "--dtype", "nvfp4", "--scale-rule", "ceil"), "scales that are powers of two"),
    ],
)
def test_options_that_say_nothing_are_refused(ask, words, message):
    """Each mistake is named, and none is a traceback."""
    answer = ask("format", *words)
    assert answer.code == 2, answer.out
    assert message in answer.err


@pytest.mark.parametrize(
    "words",
    [
        ("1e400",),
        ("-1e-5000",),
        ("1e-5000", "--rounding", "up"),
        ("1e-5000", "--rounding", "stochastic"),
        ("block", "1e5000", "-1e-5000"),
        ("sum", "10", "--term", "-1e5000"),
        ("sum", "10", "--term", "1e-5000"),
    ],
)
def test_numbers_that_no_float_holds_are_answered(ask, words):
    """Whatever the size of a number, there is an answer, on the screen and as JSON."""
    assert ask("format", *words).code == ask("format", *words, "--json").code == 0


def test_the_question_tells_the_options(ask):
    """Whoever reads the JSON sees how it was rounded."""
    answer = ask("format", "2.5", "--dtype", "fp4", "--rounding", "toward-zero", "--json").json
    assert answer["question"] == {"number": "2.5", "rounding": "toward-zero"}


def test_the_headline_names_the_formats_that_were_asked_for(ask):
    """Every format only where all are shown."""
    assert ask("format", "2.5", "--dtype", "fp4").out.startswith("2.5 in FP4_E2M1\n")
    assert ask("format", "2.5").out.startswith("2.5 in every format\n")
