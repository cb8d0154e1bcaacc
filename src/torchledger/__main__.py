"""Where `torchledger` begins, and `python -m torchledger`, which torchrun needs. Ctrl-C as it loads: no traceback."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as `typing` has it, which takes milliseconds to load in which Ctrl-C would be a traceback
if TYPE_CHECKING:
    from types import FrameType

__all__ = ["main"]

_INTERRUPTED = 130


def main() -> int:
    """Load the command line, run it and give back its exit code."""
    before = None
    try:
        import signal  # loads enum, so not before the `try`

        try:
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                before = signal.signal(signal.SIGINT, _interrupt)
        except ValueError:  # not the main thread, which alone hears signals
            pass
        from torchledger.cli.main import main as answer

        return answer()
    except KeyboardInterrupt:
        _tell()
        return _INTERRUPTED
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    """Ctrl-C: `KeyboardInterrupt` as ever, but while a module loads the process ends at once.

    Modules written in C swallow the exception as they load (torch does), and then the run goes on; others are left half
    loaded, and what uses them fails of that. Nothing is lost: while a run trains, `Interrupts` hears the signal.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_find_and_load" and code.co_filename == "<frozen importlib._bootstrap>":
            _end()
        frame = frame.f_back
    raise KeyboardInterrupt


def _end() -> None:
    """Write what is left to write, and end this process. Whatever it needs is loaded: another module may be half so."""
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - contextlib may be half loaded
            stream.flush()
        except (OSError, ValueError, RuntimeError, AttributeError):  # closed, being written to, or none
            pass
    _tell()
    os._exit(_INTERRUPTED)


def _tell() -> None:
    """Say that it was interrupted; of several ranks the first one speaks."""
    if os.environ.get("RANK", "0") == "0":
        try:  # noqa: SIM105 - likewise
            os.write(2, b"interrupted\n")
        except OSError:  # nobody listens
            pass


if __name__ == "__main__":
    sys.exit(main())
