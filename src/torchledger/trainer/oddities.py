"""What is wrong with a step's figures, in words: a first loss that cannot be, more FLOPs than the machine has."""

import math
from pathlib import Path

from torchledger.trainer.events import Step

__all__ = ["impossible_mfu", "is_unusual_start", "unusual_start"]


def is_unusual_start(loss: float, vocab_size: int, tolerance: float = 0.02) -> bool:
    """Whether a loss at step 0 is further than `tolerance` from that of even odds, ln(vocabulary)."""
    return abs(loss / math.log(vocab_size) - 1) > tolerance


def unusual_start(event: Step, vocab_size: int, weights: Path | None) -> str:
    """What is odd about the loss of the very first update; empty where nothing is, and for any other step.

    Args:
        event: the step.
        vocab_size: of the model.
        weights: what the values were read from, if they were not drawn.
    """
    if event.step > 0 or not math.isfinite(event.loss):
        return ""
    even = math.log(vocab_size)
    if weights is not None:
        if event.loss <= even:
            return ""
        return (
            f"the loss at step 0 is {event.loss:.4f}, above the {even:.4f} of even odds: the weights of {weights} know "
            "less than nothing of this data; was it prepared with their tokenizer?"
        )
    if not is_unusual_start(event.loss, vocab_size):
        return ""
    return (
        f"the loss at step 0 is {event.loss:.4f}, not within 2 % of ln(vocabulary) = {even:.4f}: "
        "the initialisation is too large, or ids repeat in the data"
    )


def impossible_mfu(event: Step) -> str:
    """What an MFU above 1 means; empty for any other."""
    if event.mfu is None or event.mfu <= 1:
        return ""
    return f"MFU is {event.mfu:.3f}, above 1: the peak it is measured against is too low"
