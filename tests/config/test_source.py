import pytest

from torchledger import config
from torchledger.config import ConfigError


def refusal(path: str, cls) -> str:
    with pytest.raises(ConfigError) as error:
        config.load(path, cls)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tokens = 15T\n",
            (
                "run.toml:1: not valid TOML: expected newline or end of document after a statement: "
                "'tokens = 15T'; an amount with a unit needs quotes: \"15T\""
            ),
        ),
        (
            "\n\nname = abc # x\n",
            "run.toml:3: not valid TOML: invalid value: 'name = abc # x'; text needs quotes: \"abc\"",
        ),
        ("a = 1\na = 2\n", "run.toml:2: not valid TOML: cannot overwrite a value: 'a = 2'"),
        ("a = [1,\n\n\n", "run.toml:1: not valid TOML: invalid value: 'a = [1,'"),
        (b"a = 1\nb = '\xff'\n", "run.toml:2: byte 0xff is not UTF-8; save the file as UTF-8 text"),
        (
            "a = 1\nextends = 3\n",
            'run.toml:2: extends: expected the path of a TOML file, got 3; write extends = "base.toml"',
        ),
    ],
)
def test_files_that_cannot_be_read(in_folder, run_class, text, message: str):
    """A broken file is named with its line, what is wrong, and the usual slip."""
    in_folder("run.toml", text)
    assert refusal("run.toml", run_class) == message


def test_files_that_are_not_there(in_folder, run_class):
    """A missing file, a folder and an impossible name are told apart; a near name is offered."""
    in_folder("run.toml", "")
    assert refusal("rum.toml", run_class) == "rum.toml: no such file; did you mean run.toml?"
    assert refusal("elsewhere/run.toml", run_class) == "elsewhere/run.toml: no such file; check the path"
    assert refusal(".", run_class) == ".: is a folder; name a .toml file in it"
    assert "cannot be read: embedded null byte" in refusal("a\0b", run_class)


def test_a_missing_extended_file_names_who_wants_it(in_folder, run_class):
    """The message says which file extends the missing one."""
    in_folder("run.toml", 'extends = "base.toml"')
    assert refusal("run.toml", run_class) == "base.toml: no such file (extended by run.toml); check the path"


def test_extends_is_relative_to_the_file_that_says_it(in_folder, run_class):
    """A chain through folders resolves each step from its own file."""
    in_folder("run.toml", 'extends = "bases/small.toml"')
    in_folder("bases/small.toml", 'extends = "../root.toml"\n[model]\nhidden_size = 8')
    in_folder("root.toml", "[model]\nhidden_size = 4\ntied = true")
    loaded = config.load("run.toml", run_class)
    assert loaded.value.model.hidden_size == 8
    assert loaded.value.model.tied
    assert loaded.origins["model.hidden_size"] == "bases/small.toml:3"


def test_a_circle_of_files_is_a_mistake(in_folder, run_class):
    """Files that extend each other are named in order."""
    in_folder("a.toml", 'extends = "b.toml"')
    in_folder("b.toml", 'extends = "./a.toml"')
    assert "in a circle: a.toml -> b.toml -> a.toml; break it" in refusal("a.toml", run_class)


def test_lists_are_replaced_and_tables_merged(in_folder, run_class):
    """A list of the stronger file stands alone, with its own origin; a table only adds and replaces keys."""
    in_folder(
        "base.toml",
        "tags = ['a', 'b']\n[model]\nhidden_size = 8\n[[model.layers]]\nsize = 1\n[[model.layers]]\nsize = 2",
    )
    in_folder("run.toml", "extends = 'base.toml'\ntags = ['c']\nscaling = {x = 1}\n[[model.layers]]\nsize = 3")
    loaded = config.load("run.toml", run_class)
    assert loaded.value.tags == ["c"]
    assert [layer.size for layer in loaded.value.model.layers] == [3]
    assert loaded.origins["model.layers[0].size"] == "run.toml:5"
    assert loaded.origins["model.hidden_size"] == "base.toml:3"


def test_a_byte_order_mark_and_windows_line_ends_are_fine(in_folder, run_class):
    """Files saved by Windows editors read the same."""
    in_folder("run.toml", b"\xef\xbb\xbfname = 'x'\r\n[model]\r\nhidden_size = 8\r\n")
    assert config.load("run.toml", run_class).origins["model.hidden_size"] == "run.toml:3"
