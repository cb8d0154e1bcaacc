import errno

import click
import pytest

from torchledger.cli.failure import DoesNotFit, report_failure
from torchledger.spec import SpecError


def named(name, *, cause=None):
    """An error of this package with the given name, as a room would raise it."""
    error = type(name, (SpecError,), {"__module__": "torchledger.somewhere"})("what, where, what to do")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SpecError("hidden_size is 7"), 2),
        (click.UsageError("no"), 2),
        (DoesNotFit("too large"), 3),
        (named("OutOfMemory"), 3),
        (named("NonFinite"), 1),
        (named("CheckpointError"), 1),
        (named("RunFolderError"), 2),
        (named("RunFolderError", cause=OSError(errno.ENOSPC, "No space left on device")), 1),
        (named("PrepareError", cause=named("TokenFileError", cause=OSError(errno.ENOSPC, "No space left"))), 1),
        (named("PrepareError", cause=FileNotFoundError(2, "No such file")), 2),
        (OSError(errno.EACCES, "Permission denied", "x.json"), 1),
        (RuntimeError("our mistake"), 1),
        (ValueError("not one of ours"), 1),
        (click.Abort(), 130),
        (click.exceptions.Exit(4), 4),
    ],
)
def test_every_error_has_its_code(error, code, capsys):
    """Wrong questions are 2, what does not fit 3, everything that failed 1; stdout stays empty."""
    assert report_failure(error) == code
    assert capsys.readouterr().out == ""


def test_an_error_that_is_its_own_cause_has_a_code_too():
    """A ring of causes is walked once: it kept a rank busy until torchrun killed it."""
    cause = RuntimeError("connection closed")
    cause.__cause__ = cause
    assert report_failure(named("RankLost", cause=cause)) == 1


def test_our_own_errors_are_their_message(capsys):
    """A user's mistake is told in its message, without a traceback or a class name."""
    report_failure(SpecError("hidden_size is 7, not a multiple of num_heads 2"))
    assert capsys.readouterr().err == "error: hidden_size is 7, not a multiple of num_heads 2\n"


def test_wrong_usage_begins_with_the_same_word(capsys):
    """Click's own errors say `error:` as all others do, usage and hint before it."""
    report_failure(click.UsageError("no such option"))
    assert capsys.readouterr().err == "error: no such option\n"
    report_failure(click.UsageError("no such option", click.Context(click.Command("count"), info_name="count")))
    assert capsys.readouterr().err.splitlines() == [
        "Usage: count [OPTIONS]",
        "Try 'count --help' for help.",
        "",
        "error: no such option",
    ]


def test_a_surprise_says_how_to_see_more(capsys):
    """An unexpected error is one line with its kind, and the flag that shows where."""
    report_failure(KeyError("bf17"))
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "KeyError" in err
    assert "--debug" in err


def test_debug_shows_the_traceback(capsys):
    """With --debug the traceback is there."""
    report_failure(RuntimeError("deep inside"), debug=True)
    assert "RuntimeError: deep inside" in capsys.readouterr().err


@pytest.mark.parametrize(("module", "extra"), [("torch", "torch"), ("sympy", "symbolic"), ("tokenizers", "tokenize")])
def test_a_missing_extra_is_named(module, extra, capsys):
    """Where an optional library is missing, the message says which extra brings it."""
    assert report_failure(ModuleNotFoundError(f"No module named {module!r}", name=module)) == 1
    assert f"torchledger[{extra}]" in capsys.readouterr().err
