"""The resume self-check: the loss of a fixed row of ids, computed when a checkpoint is saved and again when it is read.

Checksums prove that the bytes came back. This proves that they came back as the same model: under the right names, in
the right layout, through the same kernels (huggingface/transformers issue 33336: a loss that is higher after resuming).
The last step's own loss cannot be had again, since its weights are gone with its update; so the row is one that any
process has at hand, whatever its share of the data.
"""

import math

import torch

from torchledger.trainer.errors import CheckpointMismatch
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.step import MicroBatch, TrainStep
from torchledger.trainer.validation import evaluate

__all__ = ["check_loss", "compare", "row_of"]

_LONGEST = 128  # tokens: a small part of a step, on a checkpoint's rare occasion
_MULTIPLIER = 2654435761  # Knuth's multiplicative hash, 2**32 over the golden ratio: neighbours land far apart
#: How far two losses may be apart where another machine, thread count or layout rounds differently.
_ROUNDING = {"fp32": 1e-4, "tf32": 2e-3}
_COARSE_ROUNDING = 2e-2


def row_of(vocab_size: int, sequence_length: int, device: torch.device) -> MicroBatch:
    """The fixed row: inputs and targets of at most 128 tokens, id i being the hash of i.

    >>> tokens, targets = row_of(257, 4, torch.device("cpu"))
    >>> tokens.tolist(), targets.tolist()
    ([[0, 192, 129, 65]], [[192, 129, 65, 2]])
    """
    length = min(sequence_length, _LONGEST)
    ids = (torch.arange(length + 1, device=device) * _MULTIPLIER % 2**32 >> 7) % vocab_size
    return ids[None, :-1], ids[None, 1:]


def check_loss(step: TrainStep, device: torch.device) -> float:
    """Mean cross-entropy of the fixed row with the weights as they are, nats; all ranks together."""
    recipe = step.recipe
    row = row_of(step.model.spec.vocab_size, recipe.sequence_length, device)
    loss, _ = evaluate(step.model, [row], recipe, parallel=step.parallel)
    return loss


def compare(place: str, manifest: Manifest, loss: float, precision: str, *, is_same: bool) -> str:
    """What a checkpoint's check says, in words; empty if it gives the very bits, or was saved without one.

    Args:
        place: where the checkpoint is.
        manifest: of the checkpoint.
        loss: `check_loss` with its weights read back.
        precision: what it was computed in.
        is_same: whether nothing differs that decides bits.

    Raises:
        CheckpointMismatch: further apart than rounding takes it.
    """
    saved = manifest.check_loss
    if saved is None or saved == loss:
        return ""
    if not (math.isfinite(saved) and math.isfinite(loss)):
        return f"the self-check of {place} gave {saved} when it was saved, {loss} now: weights that are no numbers"
    apart = abs(loss - saved) / max(abs(saved), 1.0)
    rounding = _ROUNDING.get(precision, _COARSE_ROUNDING)
    if manifest.identity.recipe.precision != precision:
        rounding = _COARSE_ROUNDING
    if apart > rounding:
        raise CheckpointMismatch(
            f"the checkpoint {place} does not give back its model: a fixed row of tokens had a loss of {saved:.6f} "
            f"when it was saved, {loss:.6f} now, which is more than rounding; what reads or runs it has changed"
        )
    if is_same:
        return f"the self-check of {place} gave {saved!r} when it was saved, {loss!r} now: not bit for bit the same"
    return ""
