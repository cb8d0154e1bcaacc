import pytest

from torchledger.config import ConfigError
from torchledger.spec import presets
from torchledger.spec.file import read_model_file

SMALL = """
[model]
vocab_size = 100
max_sequence_length = "1k"
num_layers = 2
hidden_size = 32
[model.attention]
num_heads = 4
[model.mlp]
intermediate_size = 64
"""


def write(folder, text, name="small.toml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def read(folder, text):
    return read_model_file(write(folder, text), presets.get)


def mistakes(folder, text):
    with pytest.raises(ConfigError) as raised:
        read(folder, text)
    return raised.value.mistakes


def test_a_model_is_called_after_its_file(tmp_path):
    """Without `name` the model has the file's; sizes may have units."""
    spec = read(tmp_path, SMALL)
    assert (spec.name, spec.max_sequence_length, spec.attention.num_heads) == ("small", 1000, 4)
    assert read(tmp_path, SMALL.replace("[model]", '[model]\nname = "mine"')).name == "mine"


def test_a_file_may_change_a_preset(tmp_path):
    """`preset` names the published model, and the file says only what differs."""
    spec = read(
        tmp_path, 'preset = "Llama-3-8B"\n[model]\nnum_layers = 16\n[model.attention]\nnum_key_value_heads = 4\n'
    )
    base = presets.get("llama-3-8b")
    assert (spec.name, spec.num_layers, spec.hidden_size) == ("small", 16, base.hidden_size)
    assert (spec.attention.num_key_value_heads, spec.attention.num_heads) == (4, base.attention.num_heads)
    assert spec.position == base.position


def test_a_preset_alone_is_the_preset(tmp_path):
    """A file that changes nothing is the preset under the file's name."""
    assert read(tmp_path, 'preset = "gpt2"').vocab_size == 50257


def test_a_file_may_extend_a_file(tmp_path):
    """`extends` takes the rest from another file."""
    write(tmp_path, SMALL, "base.toml")
    spec = read(tmp_path, 'extends = "base.toml"\n[model]\nnum_layers = 5\n')
    assert (spec.name, spec.num_layers, spec.hidden_size) == ("small", 5, 32)


def test_the_config_of_a_run_has_a_model_in_it(tmp_path):
    """Tables of others are left to them."""
    spec = read(tmp_path, SMALL + "[recipe]\nbatch_size = 8\n[data]\npath = 'x'\n")
    assert (spec.name, spec.hidden_size) == ("small", 32)


def test_mistakes_have_their_line(tmp_path):
    """Every mistake of form is told with path and line, at once."""
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, SMALL.replace("num_layers = 2", "num_layers = 2.5\nhiden_size = 3"))
    assert sorted(place for place, _ in raised.value.mistakes) == ["model.hiden_size", "model.num_layers"]
    assert "hidden_size" in dict(raised.value.mistakes)["model.hiden_size"]
    assert "small.toml:5" in str(raised.value)


def test_mistakes_of_sense_are_told_under_their_path(tmp_path):
    """A model that is written well and cannot be is refused with the path in the file."""
    assert mistakes(tmp_path, SMALL.replace("num_heads = 4", "num_heads = 5")) == [
        (
            "model.hidden_size",
            "32 is not divisible by num_heads 5; give attention.head_size, or heads that divide it",
        )
    ]


def test_a_value_of_a_wrong_type_hides_no_mistake_of_sense(tmp_path):
    path = tmp_path / "odd.toml"
    path.write_text('preset = "gpt2"\n[model]\nnum_layers = "12"\nhidden_size = 700\n', encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        read_model_file(path, presets.get)
    assert [place for place, _ in refused.value.mistakes] == ["model.num_layers", "model.hidden_size"]


def test_a_mistake_beside_tables_of_others_is_told_too(tmp_path):
    """The model's own mistakes are told even where others have tables in the file."""
    text = SMALL.replace("num_layers = 2", "num_layers = 2.5") + "[recipe]\nbatch_size = 8\n"
    assert [place for place, _ in mistakes(tmp_path, text)] == ["model.num_layers"]


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("", "model", "the table [model] is missing, and so is `preset`"),
        ("[modle]\nnum_layers = 2\n", "model", "did you mean 'modle'?"),
        ('preset = "llama-9b"\n', "preset", "unknown model 'llama-9b'; did you mean 'llama-7b'?"),
        ("preset = 3\n[model]\nname = 'x'\n", "preset", "expected"),
    ],
)
def test_a_file_without_a_model(tmp_path, text, place, told):
    """A file that names no model, or no known preset, says so."""
    found = dict(mistakes(tmp_path, text))
    assert told in found[place]
