import json

import pytest

NEMOTRON = """
[model]
vocab_size = 256_000
max_sequence_length = 4096
num_layers = 32
hidden_size = 6144
norm.kind = "layer"
norm.bias = true
attention.num_heads = 48
attention.num_key_value_heads = 8
mlp.intermediate_size = 24_576
mlp.kind = "plain"
mlp.activation = "relu_squared"
"""
PALM = (
    "plan",
    "palm-540b",
    "--audit-mfu",
    "--on",
    "tpu v4 x6144",
    "--tokens-per-s",
    "238.3k",
    "--printed-mfu",
    "46.2%",
)


def test_palm_is_reproduced_by_its_own_appendix(ask):
    """238.3k tokens/s on 6,144 TPU v4 are 46.2 % (arXiv:2204.02311, table 3), by PaLM's convention and not by 6N."""
    answer = ask(*PALM)
    assert answer.code == 0
    assert "46.2% is what" in answer.out.splitlines()[0]
    told = ask(*PALM, "--json").json["answer"]
    marked = {row["convention"] for row in told["conventions"] if "MFU" in row["reproduces"]}
    assert "PaLM appendix B" in marked
    assert "6N" not in marked


def test_nemotron_of_nvidia_s_recipe(ask, tmp_path):
    """66.07 % printed, 58.5 % by the model's own FLOPs: the formula took 48 key-value heads for 8."""
    path = tmp_path / "nemotron.toml"
    path.write_text(NEMOTRON, encoding="utf-8")
    words = ("--on", "h100x16", "--step-time", "2.66", "--batch", "64", "--tflops", "653.4", "--printed-mfu", "66.07%")
    answer = ask("plan", path, "--audit-mfu", *words)
    assert answer.code == 0
    assert "66.07% is what Narayanan gives" in answer.out
    assert "48 key-value heads (the model has 8)" in answer.out
    assert "58.5 %" in answer.out
    rows = ask("plan", path, "--audit-mfu", *words, "--json").json["answer"]["conventions"]
    assert rows[0]["utilisation"] == pytest.approx(0.585, abs=0.0005)


def test_an_impossible_claim_is_answered_and_exits_3(ask):
    """104 % on an H100 is an A100's peak; the table comes all the same."""
    answer = ask("plan", "gpt2", "--audit-mfu", "--on", "h100", "--tokens-per-s", "379k", "--printed-mfu", "104%")
    assert answer.code == 3
    assert "impossible" in answer.err
    assert "the peak of an A100" in answer.out


def test_tokens_are_of_all_chips_or_of_one(ask):
    """238.3k of 6,144 chips are 38.79 of one."""
    base = ("plan", "palm-540b", "--audit-mfu", "--on", "tpu v4 x6144", "--json", "--tokens-per-s")
    whole, one = (ask(*base, text).json["answer"]["conventions"][2] for text in ("238.3k", "38.79/chip"))
    assert whole["utilisation"] == pytest.approx(one["utilisation"], rel=1e-3)


def test_a_log_of_a_run_is_read(ask, tmp_path):
    """The median step of a metrics.jsonl, warm-up left out, a last row cut in two passed over."""
    rows = [
        {"kind": "step", "step": i, "tokens": 8192, "seconds": s, "warm_up": i == 0} for i, s in enumerate((9, 2, 1, 4))
    ]
    path = tmp_path / "metrics.jsonl"
    text = "".join(json.dumps(row) + "\n" for row in rows) + '{"kind": "st'
    path.write_text(text, encoding="utf-8")
    words = ("plan", "gpt2", "--audit-mfu", "--on", "h100x2", "--log", path, "--json")
    told = ask(*words).json
    assert told["question"]["tokens_per_s"] == 8192 / 2 / 2
    assert any("3 steps in metrics.jsonl" in line for line in told["assumptions"])
    path.write_text("{}\n", encoding="utf-8")
    assert "no rows of steps" in ask(*words).err


def test_flops_over_the_peak_confirm_a_printed_mfu(ask):
    """430 of 989.4 TFLOP/s are 43.46 %: the screen says so, and not that nothing gives it; 31 % of them are nothing."""
    words = ("plan", "llama-3.1-405b", "--audit-mfu", "--on", "h100x8192", "--tflops", "430", "--printed-mfu")
    out = ask(*words, "43.46%").out
    assert "43.46% is what the printed TFLOP/s are of the dense bf16 peak of H100 SXM" in out
    assert "no convention" not in out
    assert "over no peak that is known here give it" in ask(*words, "31.0%").out


def test_rows_of_a_log_without_tokens_are_passed_over(ask, tmp_path):
    """A step of no tokens has no speed."""
    path = tmp_path / "metrics.jsonl"
    rows = [{"kind": "step", "tokens": tokens, "seconds": 2} for tokens in (0, 8192)] + [{"kind": "step", "seconds": 1}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    told = ask("plan", "gpt2", "--audit-mfu", "--on", "h100", "--log", path, "--json").json
    assert told["question"]["tokens_per_s"] == 8192 / 2


def test_hfu_shows_recompute_too(ask):
    """With a printed HFU the table of hardware FLOPs stands below."""
    words = ("--on", "h100", "--tokens-per-s", "9000", "--printed-hfu", "60%")
    assert "hardware FLOPs, recompute in" in ask("plan", "llama-3-8b", "--audit-mfu", *words).out


def test_flops_alone_are_turned_into_tokens(ask):
    """Without tokens/s the table says what each convention's FLOP/s would mean in tokens."""
    out = ask("plan", "llama-3-8b", "--audit-mfu", "--on", "h100", "--tflops", "400").out
    assert "40.4 % of the peak" in out
    assert "tokens/s a chip" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--audit-mfu", "--on", "h100", "--tflops", "400"), "an audit counts a model"),
        (("gpt2", "--audit-mfu", "--tflops", "400"), "an audit divides by a peak"),
        (("gpt2", "--audit-mfu", "--on", "h100"), "an audit needs a speed"),
        (("gpt2", "--audit-mfu", "--on", "h100", "--tflops", "400", "--mfu", "0.4"), "--printed-mfu"),
        (("gpt2", "--audit-mfu", "--on", "h100", "--step-time", "2"), "give --batch"),
        (("gpt2", "--audit-mfu", "--on", "h100", "--step-time", "2", "--tokens-per-s", "9"), "both say how fast"),
        (("gpt2", "--audit-mfu", "--on", "h100", "--tokens-per-s", "fast"), "no printed figure"),
        (("gpt2", "--audit-mfu", "--on", "v100", "--tokens-per-s", "9"), "does not run bf16"),
        (("gpt2", "--audit-mfu", "--on", "h100", "--tokens-per-s", "9", "--tp", "2"), "--tp"),
        (("gpt2", "--audit-mfu", "--on", "h100", "--tokens-per-s", "9", "--zero", "2"), "--audit-mfu asks for none"),
        (("gpt2", "--audit-mfu", "--on", "h100", "--tokens-per-s", "9", "--sequence", "0"), "--sequence: must be at"),
        (
            ("gpt2", "--audit-mfu", "--on", "h100", "--tokens-per-s", "9", "--sequence", "2048"),
            "1024 learned positions",
        ),
        (("gpt2", "--audit-mfu", "--on", "h100", "--step-time", "3", "--batch", "0"), "--batch: must be at least 1"),
        (("gpt2", "--audit-mfu", "--on", "h100", "--tokens-per-s", "218,4/chip"), "write a point"),
        (("gpt2", "--audit-mfu", "--on", "h100", "--tokens-per-s", "9", "--printed-mfu", "30,8%"), "write a point"),
        (("gpt2", "--audit-mfu", "--on", "h100x8", "--tokens-per-s", "9", "--chips", "16"), "says 8 chips"),
        (("gpt2", "--audit-mfu", "--on", "h100", "--tokens-per-s", "9", "--chips", "0"), "at least 1"),
        (("gpt2", "--audit-mfu", "--on", "h100", "--tokens-per-s", "9", "--chips", "?"), "at least 1"),
        (("gpt2", "--audit-mfu", "--on", "h100", "--tokens-per-s", "9", "--price", "$2"), "--price says nothing in an"),
        (("gpt2", "--audit-mfu", "--on", "h100", "--tokens-per-s", "1e300"), "no figure of a machine"),
    ],
)
def test_a_wrong_question_has_a_remedy(ask, words, message):
    """2, with what to give."""
    answer = ask("plan", *words)
    assert answer.code == 2
    assert message in answer.err
