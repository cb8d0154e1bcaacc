"""A rank that has ended: the others learn of it as a broken connection, which is told in words that help."""

import contextlib
import re
from collections.abc import Iterator

from torchledger.trainer.checkpoint import latest_checkpoint
from torchledger.trainer.errors import RankLost
from torchledger.trainer.run_folder import RunFolder

__all__ = ["telling_lost_ranks"]

#: What gloo, NCCL and torch's store say of a peer that has gone; torch raises plain RuntimeErrors of gloo's.
_WORDS = re.compile(
    r"Connection (?:reset|closed|refused) by peer|Connection reset|Connection closed|gloo/transport"
    r"|ncclRemoteError|ncclSystemError|Broken pipe|failed to recv|Socket Timeout",
    re.IGNORECASE,
)


@contextlib.contextmanager
def telling_lost_ranks(folder: RunFolder) -> Iterator[None]:
    """While inside, a broken connection between ranks is told as what it is.

    Args:
        folder: of the run, whose last whole checkpoint is named.

    Raises:
        RankLost: another rank has ended, or cannot be reached.
    """
    try:
        yield
    except RuntimeError as error:
        if not _WORDS.search(str(error)):
            raise
        reason = str(error).splitlines()[0].split("This is typically caused")[0].strip()
        raise RankLost(reason, latest_checkpoint(folder.checkpoints)) from error
