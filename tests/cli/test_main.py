import sys

import pytest

import torchledger
from torchledger.cli.main import COMMANDS, main, torchledger_command


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command(ask, flag):
    """The first screen names each command with what it answers."""
    answer = ask(flag)
    assert answer.code == 0
    assert all(f"\n  {name} " in answer.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(ask, name):
    """Each listed command can be imported and explains itself."""
    answer = ask(name, "--help")
    assert answer.code == 0
    assert answer.out.startswith(f"Usage: torchledger {name}")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_and_the_commands_say_the_same(name):
    """The short text of the list is the first sentence of the command's own help, so that the two cannot part."""
    command = torchledger_command.get_command(None, name)
    assert " ".join(command.help.split("\n\n")[0].split()) == COMMANDS[name]


def test_every_command_answers_in_json():
    """`--json` is on each command and subcommand."""

    def leaves(command):
        if hasattr(command, "commands"):
            for child in command.commands.values():
                yield from leaves(child)
        else:
            yield command

    for name in COMMANDS:
        for command in leaves(torchledger_command.get_command(None, name)):
            assert any("--json" in param.opts for param in command.params), f"{name} {command.name}"


def test_the_version_is_the_packages(ask):
    """`--version` prints what the package says."""
    assert ask("--version").out == f"torchledger {torchledger.__version__}\n"


def test_without_a_command_the_help_is_shown(ask):
    """Nothing asked is wrong usage, and the help says what could be."""
    answer = ask()
    assert answer.code == 2
    assert "Usage: torchledger" in answer.out + answer.err


@pytest.mark.parametrize(("typed", "meant"), [("cuont", "count"), ("fromat", "format"), ("plans", "plan")])
def test_a_misspelt_command_is_guessed(ask, typed, meant):
    """Wrong usage is exit code 2, on stderr, with the command that was probably meant."""
    answer = ask(typed)
    assert (answer.code, answer.out) == (2, "")
    assert f"did you mean {meant!r}?" in answer.err


def test_a_command_far_from_all_lists_them(ask):
    """Where nothing is close, the commands are listed."""
    answer = ask("xyzzy")
    assert answer.code == 2
    assert "count, plan" in answer.err


def test_quiet_leaves_the_answer(ask, tmp_path):
    """`--quiet` drops the notes on stderr and nothing else."""
    loud = ask("count", "gpt2", "-o", tmp_path / "a.json")
    quiet = ask("--quiet", "count", "gpt2", "-o", tmp_path / "b.json")
    assert "wrote" in loud.err
    assert quiet.err == ""
    assert quiet.out == loud.out


def test_an_interrupt_is_130(monkeypatch, capsys):
    """Ctrl-C ends with 130 and no traceback."""

    def interrupted(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(torchledger_command, "main", interrupted)
    assert main(["models"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_closed_stream_takes_nothing_away_from_the_rest(monkeypatch, name):
    """Started with a stream closed (`>&-`), a command does what it does and its exit code is its own."""
    monkeypatch.setattr(sys, name, None)
    assert main(["format", "bf16"]) == 0
    assert main(["format", "bf17"]) == 2
    getattr(sys, name).close()
