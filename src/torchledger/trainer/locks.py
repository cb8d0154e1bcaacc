"""One process at a time: the system's lock on a file, in which the one who holds it says who it is.

The lock is the system's (`flock`), so a killed process leaves none behind; what it wrote into the file stays, and says
nothing once nobody holds the lock. Where file systems are mounted without locks, and on Windows, nothing is guarded:
the lock only keeps two writers apart, and is no condition of writing.
"""

import contextlib
import datetime as dt
import errno
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Taken", "alone", "require_open", "take"]

_LONGEST_NOTE = 4096
#: Some cluster file systems are mounted without locks.
_WITHOUT_LOCKS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})


class Taken(Exception):  # a state of the world, which each caller tells in its own words
    """Another process holds the lock.

    Attributes:
        holder: which one, in words; empty where it did not say.
    """

    def __init__(self, holder: str = "") -> None:
        self.holder = holder
        super().__init__(holder)


def take(handle: int) -> None:
    """Lock an open file for this process alone, until it is closed.

    Raises:
        Taken: another process holds it.
        OSError: the lock cannot be asked for.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Taken from None
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise


@contextlib.contextmanager
def alone(path: Path, *, leave: bool = True) -> Iterator[None]:
    """While inside, no other process is inside with the same path; the file at `path` says who is.

    Args:
        path: of the lock's file; made if it is not there.
        leave: whether the file stays behind.

    Raises:
        Taken: another process is inside, with its number, host and time.
        OSError: the file cannot be made or written.
    """
    handle = _locked(path)
    try:
        with contextlib.suppress(OSError):  # a full disk keeps nobody from holding a lock
            os.ftruncate(handle, 0)
            os.write(handle, _note())
        yield
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)
    finally:
        if not leave:  # before the lock is let go: who holds a file without a name tries again
            with contextlib.suppress(OSError):
                path.unlink()
        os.close(handle)


def require_open(path: Path) -> None:
    """Look whether anybody is inside, and make nothing: who looks is not inside afterwards, and another may be.

    Args:
        path: of the lock's file; where it is not there, nobody is inside.

    Raises:
        Taken: another process is inside, with its number, host and time.
        OSError: the file cannot be looked at.
    """
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        _take_or_tell(handle)
    finally:
        os.close(handle)


def _take_or_tell(handle: int) -> None:
    """`take`, and who it is that holds it."""
    try:
        take(handle)
    except Taken:
        told = os.pread(handle, _LONGEST_NOTE, 0) if hasattr(os, "pread") else b""
        raise Taken(_holder(told)) from None


def _locked(path: Path) -> int:
    """Open and lock; between the two, who held it may have taken the file away, and then we try again."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _take_or_tell(handle)
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(handle).st_ino == path.stat().st_ino:
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _note() -> bytes:
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    return json.dumps({"process_id": os.getpid(), "host": socket.gethostname(), "since": now}).encode()


def _holder(told: bytes) -> str:
    """Who holds a lock, in words; empty where the file does not say, as in the moment after it was taken."""
    try:
        row = json.loads(told)
        return f"process {row['process_id']:d} on {row['host']}, since {row['since']}"
    except (ValueError, KeyError, TypeError):
        return ""
