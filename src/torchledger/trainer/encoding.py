"""Text to token ids on several cores: in the order of the text, whatever the number of processes."""

import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from os import _exit

import numpy as np
from jaxtyping import UInt32

from torchledger.trainer.pieces import Piece
from torchledger.trainer.tokenizer import Tokenizer, TokenizerError, parse_tokenizer

__all__ = ["encode_groups", "groups"]

GROUP_BYTES = 1 << 20  # text encoded at once
GROUP_PIECES = 512
GROUPS_AHEAD = 2  # for each process: one at work, one waiting

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
    """Each group with the ids of its pieces, in order. At most `GROUPS_AHEAD` groups a process are held.

    Args:
        stream: the groups.
        tokenizer: what encodes them.
        num_workers: processes; 1 encodes in this one (where the `tokenizers` library has threads of its own).

    Raises:
        TokenizerError: a process died, of too little memory most likely.
    """
    if num_workers <= 1:
        for group in stream:
            yield group, _encode(tokenizer, [piece.text for piece in group])
        return
    pool = ProcessPoolExecutor(
        num_workers, mp_context=get_context("spawn"), initializer=_begin, initargs=(tokenizer.to_json(),)
    )
    waiting: deque[tuple[list[Piece], Future[list[Ids]]]] = deque()
    try:
        for group in stream:
            waiting.append((group, pool.submit(_encode_there, [piece.text for piece in group])))
            if len(waiting) >= GROUPS_AHEAD * num_workers:
                first, ids = waiting.popleft()
                yield first, ids.result()
        while waiting:
            first, ids = waiting.popleft()
            yield first, ids.result()
    except BrokenProcessPool as error:
        raise TokenizerError("a process that encoded text has died (too little memory?); use fewer workers") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _encode(tokenizer: Tokenizer, texts: list[str]) -> list[Ids]:
    return [np.asarray(ids, np.uint32) for ids in tokenizer.encode_batch(texts)]


_here: list[Tokenizer] = []  # of a process of the pool: its tokenizer


def _begin(tokenizer: str) -> None:
    """Set up a process of the pool: Ctrl-C is the parent's to handle, and where the parent is killed it ends too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (connection.wait([parent.sentinel]), _exit(1)), daemon=True).start()
    _here.append(parse_tokenizer(tokenizer))


def _encode_there(texts: list[str]) -> list[Ids]:
    return [np.asarray(_here[0].encode(text), np.uint32) for text in texts]
