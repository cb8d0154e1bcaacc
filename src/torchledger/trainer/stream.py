"""The batches of a run: what it trains on and what it validates on, as its setup says."""

from typing import TYPE_CHECKING

from torchledger.trainer.batches import Batches, ValidationBatches
from torchledger.trainer.documents import Documents
from torchledger.trainer.loader import WeightedFile
from torchledger.trainer.mixture import Mixture

if TYPE_CHECKING:
    from torchledger.trainer.setup import Setup

__all__ = ["document_words", "training_batches", "validation_batches"]


def training_batches(setup: "Setup", start: int = 0) -> Batches:
    """This rank's share of every batch of the run, from batch `start` on.

    Raises:
        TokenFileError: a file that cannot be read, or whose documents nothing tells where they are asked for.
    """
    recipe = setup.recipe
    return Batches(
        _files(setup),
        recipe.batch_size,
        recipe.sequence_length,
        recipe.seed,
        start,
        rank=setup.ranks.data_rank(setup.strategy.tensor_parallel),
        world_size=setup.strategy.data_parallel,
        device=setup.device,
        documents=recipe.document_mask,
    )


def validation_batches(setup: "Setup") -> ValidationBatches:
    """The validation windows of the run, in micro-batches of a rank's size: the same on every rank.

    Raises:
        TokenFileError: a file that cannot be read, or whose documents nothing tells where they are asked for.
    """
    mine, of_run = setup.local_recipe.micro_batch_size, setup.recipe.micro_batch_size
    return ValidationBatches(
        setup.data.validation,
        mine,
        setup.recipe.sequence_length,
        max_batches=setup.config.eval_batches * (of_run // mine) or None,
        device=setup.device,
        documents=setup.recipe.document_mask,
    )


def document_words(setup: "Setup") -> list[str]:
    """How much of attention documents leave, over an epoch of each file: Σ Lᵢ² over rows·T², in words.

    Raises:
        TokenFileError: nothing tells where the documents of a file are.
    """
    if not setup.recipe.document_mask:
        return []
    length, files = setup.recipe.sequence_length, _files(setup)
    shares = Mixture([file.weight for file in files]).shares
    left = 0.0
    for file, share in zip(files, shares, strict=True):
        windows = (file.token_file.num_tokens - 1) // length
        left += share * Documents.of(file.token_file).all_squared_lengths(windows, length) / (windows * length**2)
    text = (
        f"documents are kept apart: {left:.2%} of all pairs of tokens in a sequence are within one (sum of squared "
        f"lengths over {length:,}²); model FLOPs and MFU count all pairs"
    )
    return [text]


def _files(setup: "Setup") -> list[WeightedFile]:
    return [WeightedFile(setup.data.train, setup.config.data_weight), *(part.file for part in setup.mixture)]
