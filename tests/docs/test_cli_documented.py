"""The reference says what the commands say, and every example in it runs."""

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from torchledger.cli.main import COMMANDS, EXAMPLES, main, torchledger_command

DOCS = Path(__file__).parents[2] / "docs"

#: What the examples of a help text name that is not there until the user has made it.
NEEDS_A_RUN = (
    "runs/", "data/", "run.toml", "measured.csv", "planned.csv", "plan.toml", "my_texts", "book.txt", "config.json",
    "formula.json", "a.json", "gpu.pickle", "my.py",
)  # fmt: skip
#: Examples that download nothing and fail at nothing, but take their time: they train or read the standard library.
TAKES_TIME = ("torchledger train", "prepare stdlib")


def generator():
    spec = importlib.util.spec_from_file_location("generate_cli", DOCS / "generate_cli.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def commands():
    """Every command and subcommand with its words."""

    def below(command, words):
        yield words, command
        # By its own list: a group may import its commands as late as they are called.
        for name in command.list_commands(None) if hasattr(command, "commands") else ():
            yield from below(command.get_command(None, name), (*words, name))

    for name in COMMANDS:
        yield from below(torchledger_command.get_command(None, name), (name,))


def examples():
    """Every example of every help text, the words after the two spaces that begin its explanation left out."""
    lines = [*EXAMPLES, *(line for _, command in commands() for line in getattr(command, "examples", ()))]
    return [line.split("   ")[0].strip() for line in lines]


def test_the_reference_is_current():
    """docs/cli.md is what `make docs` would write now."""
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == generator().reference(), "run `make docs`"


def test_every_command_is_in_the_reference():
    """Each command and subcommand has its section."""
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    for words, _ in commands():
        assert f" torchledger {' '.join(words)}\n" in page


def test_every_option_has_help():
    """No option is listed without saying what it does."""
    for words, command in commands():
        for param in command.params:
            if param.param_type_name == "option":
                assert param.help, f"{' '.join(words)} {param.opts}"


def test_every_command_has_an_example():
    """A command that answers shows how it is called."""
    for words, command in commands():
        if not hasattr(command, "commands"):
            assert command.examples, words


@pytest.mark.parametrize("line", examples())
def test_every_example_is_one_of_ours(line):
    """An example begins with the program's name and one of its commands."""
    program, command, *_ = shlex.split(line)
    assert program == "torchledger"
    assert command in COMMANDS


@pytest.mark.parametrize(
    "line",
    [line for line in dict.fromkeys(examples()) if not any(word in line for word in (*NEEDS_A_RUN, *TAKES_TIME))],
)
def test_every_example_runs(line, tmp_path, monkeypatch, capsys):
    """What the help shows can be typed: it answers with exit code 0."""
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line.partition(" > ")[0])[1:]) == 0
    assert capsys.readouterr().out


def test_python_m_is_the_same_program():
    """`python -m torchledger`, which torchrun needs, is the command."""
    done = subprocess.run(
        [sys.executable, "-m", "torchledger", "--version"], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.startswith("torchledger ")
