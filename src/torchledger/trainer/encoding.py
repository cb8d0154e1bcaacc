"""Text to token ids on several cores: in the order of the text, whatever the number of processes."""

import contextlib
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from jaxtyping import UInt32

from torchledger.trainer.pieces import Piece
from torchledger.trainer.tokenizer import Tokenizer, TokenizerError, parse_tokenizer

__all__ = ["encode_groups", "groups", "work"]

GROUP_BYTES = 1 << 20  # text encoded at once
GROUP_PIECES = 512

Ids = UInt32[np.ndarray, " tokens"]


def groups(stream: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces together until they are worth sending to another process."""
    group: list[Piece] = []
    size = 0
    for piece in stream:
        group.append(piece)
        size += piece.num_bytes
        if size >= GROUP_BYTES or len(group) >= GROUP_PIECES:
            yield group
            group, size = [], 0
    if group:
        yield group


def encode_groups(
    stream: Iterable[list[Piece]], tokenizer: Tokenizer, num_workers: int
) -> Iterator[tuple[list[Piece], list[Ids]]]:
    """Each group with the ids of its pieces, in order. No more groups are held than there are processes.

    Args:
        stream: the groups.
        tokenizer: what encodes them.
        num_workers: processes at most, begun when there is a group for them; 1 encodes in this one (where the
            `tokenizers` library has threads of its own).

    Raises:
        TokenizerError: a process died, of too little memory most likely.
    """
    if num_workers <= 1:
        for group in stream:
            yield group, _encode(tokenizer, [piece.text for piece in group])
        return
    waiting: deque[tuple[list[Piece], _Worker]] = deque()
    workers: list[_Worker] = []
    free: deque[_Worker] = deque()
    try:
        for group in stream:
            if not free and len(workers) < num_workers:
                workers.append(_Worker(tokenizer))
                free.append(workers[-1])
            elif not free:
                first, worker = waiting.popleft()
                ids = worker.receive()
                free.append(worker)
                yield first, ids
            worker = free.popleft()
            worker.send([piece.text for piece in group])
            waiting.append((group, worker))
        while waiting:
            first, worker = waiting.popleft()
            yield first, worker.receive()
    finally:
        for worker in workers:
            worker.close()


class _Worker:
    """A process of its own that encodes: started as a program, so that it never runs the caller's script again.

    It reads texts from its standard input until that ends, as it does when this process ends, in whatever way. One
    group is with it at a time: it never writes while it is written to, so neither can wait for the other for ever.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        words = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import work; work()"]
        self._process = subprocess.Popen(  # noqa: S603 - our own code
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.send(tokenizer.to_json())

    def send(self, value: Any) -> None:
        stream = self._process.stdin
        assert stream is not None
        try:
            pickle.dump(value, stream)
            stream.flush()
        except OSError as error:
            raise _died() from error

    def receive(self) -> list[Ids]:
        assert self._process.stdout is not None
        try:
            ids: list[Ids] = pickle.load(self._process.stdout)  # noqa: S301 - our own process wrote it
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise _died() from error
        return ids

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()


def _died() -> TokenizerError:
    return TokenizerError("a process that encoded text has died (too little memory?); use fewer workers")


def work() -> None:
    """What a worker does: take a tokenizer, then encode each list of texts that comes in, until none does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    with contextlib.suppress(EOFError):
        tokenizer = parse_tokenizer(pickle.load(sys.stdin.buffer))  # noqa: S301 - our own parent wrote it
        while True:
            texts = pickle.load(sys.stdin.buffer)  # noqa: S301
            pickle.dump([np.asarray(tokenizer.encode(text), np.uint32) for text in texts], sys.stdout.buffer)
            sys.stdout.buffer.flush()


def _encode(tokenizer: Tokenizer, texts: list[str]) -> list[Ids]:
    return [np.asarray(ids, np.uint32) for ids in tokenizer.encode_batch(texts)]
