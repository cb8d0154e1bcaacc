"""The further parts of a run's mixture: opened, proven, and held against the first."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchledger.trainer.errors import SetupError
from torchledger.trainer.loader import WeightedFile
from torchledger.trainer.mixture import Mixture
from torchledger.trainer.run_config import MixturePart, TokenFileConfig
from torchledger.trainer.run_data import RunData, open_run_data
from torchledger.trainer.tokenfile import TokenFile
from torchledger.units import format_number

__all__ = ["MixedPart", "data_identity", "mixture_words", "open_mixture"]


@dataclass(frozen=True, slots=True)
class MixedPart:
    """Training tokens beside `RunConfig.data`, and their weight."""

    data: RunData
    weight: float

    @property
    def file(self) -> WeightedFile:
        """What batches read."""
        return WeightedFile(self.data.train, self.weight)


def open_mixture(
    parts: Sequence[MixturePart], first: RunData, told: TokenFileConfig, model_vocab_size: int
) -> tuple[MixedPart, ...]:
    """Open the parts; what `told` says of a token file holds for each that is one.

    Raises:
        SetupError: parts of different tokenizers, or one that is there twice.
        PrepareError, TokenFileError, TokenizerError: as of the first, see `open_run_data`.
    """
    alone = replace(told, validation=None, tokenizer=None)
    opened = tuple(MixedPart(open_run_data(part.data, alone, model_vocab_size), part.weight) for part in parts)
    places: set[Path] = {first.train.path.resolve()}
    for part in opened:
        hashes = (first.tokenizer_hash, part.data.tokenizer_hash)
        if None not in hashes and hashes[0] != hashes[1]:
            raise SetupError(
                f"{first.place} and {part.data.place} were made with different tokenizers: one id would mean two "
                f"things; prepare one with the tokenizer of the other"
            )
        path = part.data.train.path.resolve()
        if path in places:
            raise SetupError(f"{part.data.place} is in the mixture twice; give it once, with the sum of its weights")
        places.add(path)
    return opened


def mixture_words(
    first: RunData, weight: float, parts: Sequence[MixedPart], num_samples: int, sequence_length: int
) -> list[str]:
    """What a run of `num_samples` sequences makes of a mixture, in words."""
    if not parts:
        return []
    mixture = Mixture([weight, *(part.weight for part in parts)])
    words = []
    for data, share in zip((first, *(part.data for part in parts)), mixture.shares, strict=True):
        epochs = num_samples * share / ((data.train.num_tokens - 1) // sequence_length)
        times = format_number(epochs)
        words.append(f"{share:.4g} of the sequences are from {data.place}, which the run passes over {times} times")
    unknown = [str(data.place) for data in (first, *(part.data for part in parts)) if data.tokenizer_hash is None]
    if unknown:
        words.append(f"the tokenizer of {', '.join(unknown)} is not known: it is taken to be that of the other parts")
    held_out = [str(part.data.place) for part in parts if part.data.prepared is None]
    if held_out:
        words.append(f"of {', '.join(held_out)} the end is held out, as it would be if it were trained on alone")
    return [*words, f"validation is on that of {first.place} alone"]


def data_identity(
    first: RunData, weight: float, parts: Sequence[MixedPart], *, has_documents: bool
) -> Mapping[str, Any]:
    """What of the data decides the bits of a run: ids, shares, and where documents are kept apart, their bounds."""
    rows: dict[str, Any] = {"train_sha256": first.train_sha256, "tokenizer_hash": first.tokenizer_hash}
    if parts:
        rows["mixture_sha256"] = [part.data.train_sha256 for part in parts]
        rows["mixture_shares"] = list(Mixture([weight, *(part.weight for part in parts)]).shares)
    if has_documents:
        files = (first.train, *(part.data.train for part in parts))
        rows["documents"] = [_documents_hash(token_file) for token_file in files]
    return rows


def _documents_hash(token_file: TokenFile) -> str:
    """Of our own files what the header says; where an id marks the bounds, that id, since the ids are hashed."""
    if token_file.header.offsets_sha256 is not None:
        return token_file.header.offsets_sha256
    if token_file.layout != "megatron":
        return f"id {token_file.header.end_of_text_id}, {'first' if token_file.marks_begin else 'last'}"
    return hashlib.sha256(token_file.documents().tobytes()).hexdigest()
