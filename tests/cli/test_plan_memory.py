import pytest


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--precision", "fp32"), 8 * 80e9 / 16),
        (("--precision", "bf16-master"), 8 * 80e9 / (2 + 2 + 4 + 8)),
        (("--precision", "bf16-master", "--gradients", "fp32"), 8 * 80e9 / (2 + 4 + 4 + 8)),
        (("--precision", "bf16-master", "--zero", "0"), 80e9 / 16),
        (("--precision", "bf16-master", "--zero", "1"), 80e9 / (4 + 12 / 8)),
        (("--precision", "bf16-master", "--zero", "2"), 80e9 / (2 + 14 / 8)),
        (("--precision", "fp8"), 8 * 80e9 / 16),
        (("--precision", "fp32", "--optimizer", "lion"), 8 * 80e9 / (4 + 4 + 4)),
        (("--precision", "fp32", "--optimizer", "adafactor"), 8 * 80e9 / (4 + 4)),
        (("--precision", "bf16-pure", "--optimizer", "sgd"), 8 * 80e9 / (2 + 2)),
    ],
)
def test_the_largest_model_of_eight_h100(ask, words, expected):
    """Bytes of the chips over bytes a parameter; what is not spread stands on every chip."""
    answer = ask("plan", "--solve", "params", "--on", "h100x8", *words, "--json").json["answer"]
    assert answer["num_parameters"] == pytest.approx(expected, abs=1)


def test_activations_take_their_room(ask):
    """Kept more than recomputed, and both more than none; twice the tokens leave less; the formula is told."""
    base = ("plan", "--solve", "params", "--on", "h100x8", "--json")
    more = [
        (),
        ("--activations", "recomputed"),
        ("--activations", "kept"),
        ("--activations", "kept", "--tokens-per-chip", "16384"),
    ]
    answers = [ask(*base, *words).json for words in more]
    sizes = [answer["answer"]["num_parameters"] for answer in answers]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 4
    assert any("34·h bytes a token and layer" in line for line in answers[2]["assumptions"])
    assert any("not counted" in line for line in answers[0]["assumptions"])


def test_a_model_lends_its_family_s_activations(ask):
    """With MODEL its own activations are scaled, and the assumptions say so."""
    words = ("plan", "llama-3-8b", "--solve", "params", "--on", "h100x8", "--activations", "recomputed", "--json")
    answer = ask(*words).json
    assert any("as counted for llama-3-8b" in line for line in answer["assumptions"])
    assert 1e9 < answer["answer"]["num_parameters"] < 40e9


def test_the_fewest_chips_that_hold_a_model(ask):
    """70B in FP32: 70e9·16 / 80e9 = 14 chips; nothing is said of time, so memory alone answers."""
    answer = ask("plan", "--solve", "chips", "--params", "70B", "--on", "h100", "--json").json["answer"]
    assert answer["num_chips"] == 14 == -(-70 * 16 // 80)
    out = ask("plan", "--solve", "chips", "--params", "70B", "--on", "h100").out
    assert out.startswith("14 × H100 SXM are the fewest that hold 70B parameters")
    assert "chips = 70B · 16 bytes / 80 GB = 14" in out
    assert ask("plan", "llama-3-8b", "--solve", "chips", "--on", "h100", "--json").json["answer"]["num_chips"] == 2


@pytest.mark.parametrize(
    ("words", "named", "unnamed"),
    [
        ((), "fewer --tokens-per-chip than 8,192", "--zero 3"),
        (("--zero", "1"), "--zero 3 spreads the whole state and --activations recomputed", "only"),
    ],
)
def test_what_would_help_is_named_and_what_is_so_already_is_not(ask, words, named, unnamed):
    """70B's kept activations of 8,192 tokens are larger than a chip at level 3, where --zero 3 would change nothing."""
    base = ("plan", "--solve", "chips", "--params", "70B", "--on", "h100", "--activations", "kept")
    answer = ask(*base, *words)
    assert answer.code == 3
    assert named in answer.err
    assert unnamed not in answer.err
    assert ask(*base, "--tokens-per-chip", "256").code == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--solve", "chips", "--params", "70B", "--on", "h100", "--zero", "1"), 3, "no number of chips holds it"),
        (
            ("--solve", "params", "--on", "h100x8", "--activations", "kept", "--tokens-per-chip", "1T"),
            3,
            "activations alone",
        ),
        (("--solve", "params", "--on", "h100x8", "--zero", "4"), 2, "--zero is 4"),
        (("--solve", "params", "--on", "h100x8", "--tokens-per-chip", "0"), 2, "at least 1"),
    ],
)
def test_what_does_not_fit_or_cannot_be_asked(ask, words, code, message):
    """3 where nothing fits, with the remedy; 2 where the question is wrong."""
    answer = ask("plan", *words)
    assert answer.code == code
    assert message in answer.err
