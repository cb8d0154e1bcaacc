"""`count file.py:build --trace`: the model or step that a user's file makes."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from torchledger.cli.failure import Failed

# Files of these are not the user's.
_OTHERS = (
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")), str(Path(__file__).parents[1]), "<",
)  # fmt: skip


def is_own(name: str) -> bool:
    """Whether MODEL names a function in a Python file."""
    return name.partition(":")[0].endswith(".py")


def load_function(place: str) -> Callable[[], Any]:
    """The function that `file.py:build` names; `build` where no name is given.

    Raises:
        click.UsageError: no such file, no such name, or no function.
        Failed: the file itself raises; the message says where.
    """
    file, _, name = place.partition(":")
    name = name or "build"
    path = Path(file)
    if not path.is_file():
        raise click.UsageError(f"no file {file}; write file.py:function")
    found = getattr(_module(path), name, None)
    if found is None:
        names = [key for key, value in vars(_module(path)).items() if callable(value) and not key.startswith("_")]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {file}:{near[0]}?" if near else f"; it has {', '.join(names) or 'no function'}"
        raise click.UsageError(f"{file} has no {name}{hint}")
    if not callable(found):
        raise click.UsageError(f"{file}:{name} is {type(found).__name__}, not a function")
    function: Callable[[], Any] = found
    return function


@contextlib.contextmanager
def of_the_user() -> Iterator[None]:
    """What the user's code prints goes to stderr: stdout is for the answer."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def users_error(place: str, error: BaseException) -> Failed:
    """An exception of the user's code as a message: what, and where by its own notes and innermost line."""
    if isinstance(error, SystemExit):
        return Failed(f"{place} ended the program with code {error.code} ({_innermost(error)})")
    notes = "; ".join(getattr(error, "__notes__", ()))
    where = notes or _innermost(error)
    return Failed(f"{place} raised {type(error).__name__}: {error}" + (f" ({where})" if where else ""))


def _module(path: Path) -> Any:
    name = f"torchledger_own_{path.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(path.resolve()):
        return known
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None, "a .py file has a loader"
    assert spec.loader is not None, "as above"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with of_the_user():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise users_error(str(path), error) from error
    return module


def _innermost(error: BaseException) -> str:
    """The innermost line of the user's own code in a traceback; "" where none of it ran."""
    traceback, found = error.__traceback__, ""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith(_OTHERS):
            found = f"at {Path(file).name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found
