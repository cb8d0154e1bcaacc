import json
import tomllib

import pytest

RUN = """
model = "stdlib-small"
data = "data/stdlib"
num_steps = 4
[recipe]
batch_size = 8
"""


@pytest.fixture
def run_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(RUN, encoding="utf-8")
    return path


def test_every_value_has_its_origin(ask, run_file):
    """Each value is shown with where it comes from: a line of the file, --set, or the default."""
    rows = {
        line.split()[0]: line for line in ask("config", "show", run_file, "--set", "name=mine").out.splitlines()[2:]
    }
    _, value, origin = rows["recipe.batch_size"].split()
    assert value == "8"
    assert origin.endswith("run.toml:6")
    assert rows["name"].split()[1:] == ["mine", "--set"]
    assert rows["recipe.precision"].endswith("default")


def test_the_whole_file_stands_alone(ask, run_file, tmp_path):
    """`--toml` prints a file that says everything, and reads back to the same."""
    text = ask("config", "show", run_file, "--toml").out
    assert tomllib.loads(text)["recipe"]["batch_size"] == 8
    whole = tmp_path / "whole.toml"
    whole.write_text(text)
    assert ask("config", "show", whole, "--toml").out == text


def test_files_start_from_others(ask, run_file, tmp_path):
    """`extends` takes the rest from another file."""
    child = tmp_path / "child.toml"
    child.write_text('extends = "run.toml"\n[recipe]\nsequence_length = 64\n')
    values = ask("config", "show", child, "--json").json["answer"]["config"]
    assert (values["recipe"]["batch_size"], values["recipe"]["sequence_length"]) == (8, 64)


def test_a_right_file_is_right(ask, run_file, model_file):
    """Nothing wrong is exit code 0, for a run and for a model."""
    assert ask("config", "check", run_file).code == 0
    assert ask("config", "check", model_file).code == 0
    assert ask("config", "check", run_file, "--json").json["answer"] == {"is_right": True}


def test_five_mistakes_at_once(ask, run_file):
    """Every mistake with its path, and a guess for a misspelt key; exit code 2."""
    run_file.write_text(
        'modle = "gpt2"\nmodel = "gpt2"\ndata = "d"\nnum_steps = 2.5\ndevice = "tpu"\n'
        '[recipe]\nbatch_size = "many"\nprecision = "fp12"\n'
    )
    answer = ask("config", "check", run_file)
    assert answer.code == 2
    assert "5 mistakes" in answer.err
    for place in ("modle", "num_steps", "device", "recipe.batch_size", "recipe.precision"):
        assert place in answer.err
    assert "did you mean model" in answer.err.replace("'", "")


def test_a_file_that_is_no_toml(ask, run_file):
    """Broken syntax names the line."""
    run_file.write_text("model = \n")
    answer = ask("config", "check", run_file)
    assert answer.code == 2
    assert "run.toml" in answer.err


@pytest.mark.parametrize(("kind", "key"), [("run", "recipe"), ("model", "model")])
def test_the_schema_describes_the_files(ask, kind, key):
    """A JSON Schema with the file's keys, for editors."""
    schema = json.loads(ask("config", "schema", kind).out)
    assert key in schema["properties"]
    assert schema["$schema"].startswith("https://json-schema.org/")
