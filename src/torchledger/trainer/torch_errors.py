"""Errors that torch tells by words only, as errors of a training run: no memory left, what does not repeat."""

import re
from typing import NoReturn

import torch

from torchledger.trainer.determinism import nondeterministic
from torchledger.trainer.errors import OutOfMemory, TrainError

__all__ = ["out_of_memory", "raise_in_our_words"]


def raise_in_our_words(error: BaseException, step: int | None) -> NoReturn:
    """Raise the error as one of a training run, where it is one of those that torch tells by words only.

    Args:
        error: what was caught.
        step: the update that was running; nothing while the model was built.

    Raises:
        OutOfMemory, Nondeterministic: with the error as its cause; else the error itself, which is no cause of itself.
    """
    found: TrainError | None = out_of_memory(error, step) or nondeterministic(error, step)
    if found is None:
        raise error
    raise found from error


def out_of_memory(error: BaseException, step: int | None) -> OutOfMemory | None:
    """The error in our words if an allocator refused, else nothing.

    torch's CPU allocator raises a plain RuntimeError, known by its words only.
    """
    text = str(error)
    refused = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    if not refused and not re.search(r"can't allocate memory|not enough memory|out of memory", text):
        return None
    asked = re.search(r"allocate (\d+) bytes", text)
    return OutOfMemory(step, int(asked.group(1)) if asked else None)
