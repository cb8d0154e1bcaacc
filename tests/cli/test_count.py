import json

import pytest

from torchledger.ledger import from_csv, from_json

# what the model of `model_file` is
B, T, V, L, D, H, F = 1, 16, 64, 2, 8, 2, 16
PARAMETERS = V * D + L * (4 * D * D + 3 * D * F + 2 * D) + D + V * D
FORWARD = 2 * B * T * (L * (4 * D * D + 3 * D * F) + D * V) + L * 2 * (2 * B * T * T * D)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt2", 124_439_808),
        ("gpt2-xl", 1_557_611_200),
        ("llama-2-7b", 6_738_415_616),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("llama-3.1-405b", 405_853_388_800),
        ("tinyllama-1.1b", 1_100_048_384),
    ],
)
def test_parameters_to_the_last_one(ask, name, expected):
    """Published counts, to the last parameter."""
    assert ask("count", name, "--json").json["answer"]["num_parameters"] == expected
    assert f"{expected:,}" in ask("count", name).out


def test_a_step_by_hand(ask, model_file):
    """2·B·T·(weights of the matmuls) + attention's two squares forward, twice that backward."""
    answer = ask("count", model_file, "--json").json["answer"]
    assert answer["num_parameters"] == PARAMETERS
    assert answer["flops_by_phase"]["forward"] == FORWARD
    assert answer["flops_by_phase"]["backward"] == 2 * FORWARD
    assert answer["total_flops"] == 3 * FORWARD
    assert answer["tokens_per_step"] == T


def test_the_default_sequence_is_said(ask):
    """One sequence of min(model maximum, 8192) tokens, printed."""
    assert "1 × 8,192 tokens" in ask("count", "llama-3.1-8b").out
    assert "1 × 1,024 tokens" in ask("count", "gpt2").out


def test_options_and_sets_change_the_question(ask, model_file):
    """Options are fields of the recipe; `--set` reaches every field of model and recipe."""
    words = ("--batch", "4", "--sequence", "8", "--precision", "bf16", "--attention", "math", "--recompute", "full")
    question = ask("count", model_file, *words, "--set", "model.num_layers=3", "--json").json["question"]
    assert question["recipe"]["batch_size"] == 4
    assert question["recipe"]["sequence_length"] == 8
    assert question["recipe"]["precision"] == "bf16"
    assert question["recipe"]["attention"] == "math"
    assert question["recipe"]["recompute"] == "full"
    assert question["model"]["num_layers"] == 3


def test_the_recipe_of_a_file_is_taken(ask, model_file):
    """A file with a [recipe] is counted with it, and options are stronger."""
    model_file.write_text(model_file.read_text() + "\n[recipe]\nbatch_size = 3\nsequence_length = 4\n")
    recipe = ask("count", model_file, "--batch", "5", "--json").json["question"]["recipe"]
    assert (recipe["batch_size"], recipe["sequence_length"]) == (5, 4)


@pytest.mark.parametrize(
    "by", ["module", "op", "phase", "kind", "number_format", "parameter", "activation", "convention"]
)
def test_every_cut_is_a_table(ask, model_file, by):
    """Each cut and list is shown, and told in JSON."""
    assert ask("count", model_file, "--by", by).out.count("\n") > 3
    assert ask("count", model_file, "--by", by, "--json").json["schema"] == "torchledger.count/1"


def test_depth_cuts_the_tree(ask, model_file):
    """`--depth 1` shows the roots only."""
    assert "attention" not in ask("count", model_file, "--by", "module", "--depth", "1").out.split("convention")[0]
    assert "─ attention" in ask("count", model_file, "--by", "module", "--depth", "2").out


def test_parameters_by_name(ask, model_file):
    """Names, shapes, bytes and what is tied; every layer by name on demand."""
    rows = ask("count", model_file, "--by", "parameter", "--json").json["answer"]["parameters"]
    assert sum(row["num_parameters"] for row in rows) == PARAMETERS
    expanded = ask("count", model_file, "--by", "parameter", "--expand", "--json").json["answer"]["parameters"]
    assert "layers.1.mlp.up.weight" in {row["name"] for row in expanded}
    assert "embedding.weight" in ask("count", "gpt2", "--by", "parameter").out


def test_conventions_are_chosen_and_printed(ask, model_file):
    """Exact attention counts the causal half; the convention stands below the table."""
    exact = ask("count", model_file, "--count-attention", "exact", "--json").json["answer"]["total_flops"]
    pairs = T * (T + 1) // 2
    assert exact == 3 * (FORWARD - L * 2 * 2 * B * (T * T - pairs) * D)
    assert "attention exact" in ask("count", model_file, "--count-attention", "exact").out
    every = ask("count", model_file, "--operations", "all", "--json").json["answer"]["total_flops"]
    assert every > 3 * FORWARD


@pytest.mark.parametrize(("ending", "read"), [("json", from_json), ("csv", from_csv)])
def test_the_ledger_is_written(ask, model_file, tmp_path, ending, read):
    """`-o` writes the lines, which read back to the same FLOPs."""
    path = tmp_path / f"step.{ending}"
    answer = ask("count", model_file, "-o", path)
    assert answer.code == 0
    assert str(path) in answer.err
    assert read(path.read_text()).flops == 3 * FORWARD


def test_another_ending_is_refused(ask, model_file, tmp_path):
    """A file that is neither JSON nor CSV is wrong usage."""
    answer = ask("count", model_file, "-o", tmp_path / "step.xlsx")
    assert answer.code == 2
    assert ".json or a .csv" in answer.err


def test_letters(ask, model_file):
    """`--symbolic` prints polynomials whose value at the model's sizes is the count."""
    sympy = pytest.importorskip("sympy")
    answer = ask("count", model_file, "--symbolic", "--json").json["answer"]
    values = {sympy.Symbol(letter): value for letter, value in answer["values"].items()}
    assert int(sympy.sympify(answer["polynomials"]["forward"]).subs(values)) == FORWARD
    shown = ask("count", model_file, "--symbolic").out
    assert "T²" in shown
    assert "sequences in a micro-batch" in shown


def test_looking_agrees_with_arithmetic(ask, model_file):
    """`--trace` runs the real module on no memory: the same FLOPs, to the last one, and a peak."""
    pytest.importorskip("torch")
    answer = ask("count", model_file, "--trace", "--json").json["answer"]
    assert answer["total_flops"] == 3 * FORWARD
    assert answer["peak_bytes"] > 0
    shown = ask("count", model_file, "--trace").out
    assert "they agree on every contraction" in shown
    assert "alive at the peak" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lama-3-8b",), "did you mean"),
        (("gpt2", "--batch", "0"), "batch_size"),
        (("gpt2", "--sequence", "5000"), "sequence_length"),
        (("gpt2", "--set", "model.hiden_size=4"), "did you mean model.hidden_size"),
        (("gpt2", "--set", "model.num_layers=3.7"), "num_layers"),
        (("gpt2", "--batch", "two"), "cannot read 'two'"),
    ],
)
def test_a_wrong_question_is_exit_code_2(ask, words, message):
    """Unknown models, impossible recipes and misspelt keys say what is wrong."""
    answer = ask("count", *words)
    assert answer.code == 2
    assert message in answer.err


def test_every_mistake_at_once(ask, tmp_path):
    """A model file with three mistakes tells all three."""
    path = tmp_path / "wrong.toml"
    path.write_text(
        '[model]\nvocab_size = "many"\nmax_sequence_length = 8\nnum_layers = 2.5\nhidden_size = 8\nhead_bias = 3\n'
        "[model.attention]\nnum_heads = 2\n[model.mlp]\nintermediate_size = 8\n"
    )
    answer = ask("count", path)
    assert answer.code == 2
    for place in ("model.vocab_size", "model.num_layers", "model.head_bias"):
        assert place in answer.err


def test_json_is_json(ask, model_file):
    """The document has the four keys that every answer has."""
    document = json.loads(ask("count", model_file, "--json").out)
    assert list(document) == ["schema", "question", "answer", "assumptions"]
    assert document["assumptions"]


RUN = """
data = "data"
num_steps = 20
name = "mine"
precision = "bf16"
attention = "auto"
"""


def test_a_runs_file_is_counted_with_its_model_and_recipe(ask, model_file):
    """What `train` reads, `count` reads: the plain values beside the model are the run's, its folder is as good."""
    text = RUN + model_file.read_text() + "\n[recipe]\nbatch_size = 3\nsequence_length = 4\n[sample]\nlength = 3\n"
    (model_file.parent / "config.toml").write_text(text)
    for path in (model_file.parent / "config.toml", model_file.parent):
        answer = ask("count", path, "--json")
        assert answer.code == 0, answer.err
        assert answer.json["answer"]["tokens_per_step"] == 3 * 4
        assert answer.json["question"]["recipe"]["precision"] == "bf16"
        assert answer.json["question"]["model"]["num_layers"] == 2


def test_a_runs_file_may_name_its_model(ask, model_file, tmp_path, monkeypatch):
    """A preset, or a model file; a name that is none is told at its place, and so is a circle."""
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run.toml"
    for named, num_layers in (("gpt2", 12), (model_file.name, 2)):
        run.write_text(f'model = "{named}"' + RUN)
        assert ask("count", "run.toml", "--json").json["question"]["model"]["num_layers"] == num_layers
    run.write_text('model = "gtp2"' + RUN)
    assert "run.toml: model: 'gtp2' is no model" in ask("count", "run.toml").err
    run.write_text('model = "run.toml"' + RUN)
    answer = ask("count", "run.toml")
    assert answer.code == 2
    assert "names its model too" in answer.err
