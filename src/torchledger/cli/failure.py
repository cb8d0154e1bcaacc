"""What becomes of an error: one message on stderr and an exit code.

0    fine
1    something failed that the question is not to blame for (a full disk, a NaN loss, our own mistake)
2    wrong usage or configuration
3    does not fit
4    `compare` beyond tolerance
129  the terminal hung up
130  interrupted
143  terminated
"""

from __future__ import annotations

import io
import traceback

import click

FAILED = 1
WRONG_USAGE = 2
DOES_NOT_FIT = 3
BEYOND_TOLERANCE = 4
INTERRUPTED = 130
TERMINATED = 143
SIGNALLED = 128  # and the number of the signal, as shells have it: 129, 130 or 143


class DoesNotFit(click.ClickException):
    """The answer is that it does not fit: exit code 3."""

    exit_code = DOES_NOT_FIT


class Failed(click.ClickException):
    """Something failed that the question is not to blame for: exit code 1."""

    exit_code = FAILED


def report_failure(error: Exception, *, debug: bool = False) -> int:
    """Tell the user what went wrong, and give the exit code.

    An error that this package raises on purpose (a `ValueError` of its own) is its message and no more. Anything else
    is our mistake: one line, and how to see the traceback.
    """
    if debug and not isinstance(error, (click.exceptions.Exit, click.Abort)):
        traceback.print_exception(error)
    told, code = described(error, debug=debug)
    if told:
        click.echo(told, err=True)
    return code


def described(error: Exception, *, debug: bool = False) -> tuple[str, int]:
    """What is said of an error, empty where nothing is, and the exit code."""
    match error:
        case click.exceptions.Exit():
            return "", error.exit_code
        case click.Abort():
            return "interrupted", INTERRUPTED
        case click.ClickException():
            return _shown(error), error.exit_code
        case ValueError() if _is_ours(error):
            return f"error: {error}", _code_of(error)
        case ModuleNotFoundError() if extra := _missing_extra(error):
            return f"error: this needs {error.name}: pip install 'torchledger[{extra}]'", FAILED
        case OSError():
            where = f": {error.filename}" if error.filename else ""
            return f"error: {error.strerror or error}{where}", FAILED
    hint = "" if debug else "; torchledger --debug ... shows where"
    return f"error: {type(error).__name__}: {error}{hint}", FAILED


def _shown(error: click.ClickException) -> str:
    """What click would write, with usage and hint, under the same first word as all our own errors."""
    text = io.StringIO()
    error.show(text)
    return text.getvalue().rstrip("\n").replace("Error: ", "error: ", 1)


# By name, because knowing the class would load torch. Whoever is no exception here is a wrong question.
_CODES = {
    "NonFinite": FAILED,
    "CheckpointError": FAILED,
    "RankLost": FAILED,
    "OutOfMemory": DOES_NOT_FIT,
    "NothingFits": DOES_NOT_FIT,
}


def _code_of(error: ValueError) -> int:
    """A full disk or a folder that cannot be written is no fault of the question, nor is a loss that is no number."""
    cause: BaseException | None = error
    seen: list[BaseException] = []  # `raise x from x`, in any package, makes a ring
    while cause is not None and not isinstance(cause, OSError):
        seen.append(cause)
        cause = None if cause.__cause__ in seen else cause.__cause__
    if cause is not None and not isinstance(cause, (FileNotFoundError, NotADirectoryError)):
        return FAILED
    return _CODES.get(type(error).__name__, WRONG_USAGE)


def _is_ours(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == "torchledger"


_EXTRAS = {
    "torch": "torch",
    "numpy": "torch",
    "safetensors": "torch",
    "psutil": "torch",
    "pynvml": "torch",
    "einops": "torch",
    "jaxtyping": "torch",
    "tokenizers": "tokenize",
    "zstandard": "data",
    "pyarrow": "data",
    "sympy": "symbolic",
    "transformers": "hf",
    "huggingface_hub": "hf",
}


def _missing_extra(error: ModuleNotFoundError) -> str | None:
    return _EXTRAS.get((error.name or "").partition(".")[0])
