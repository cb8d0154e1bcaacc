"""Where the first values come from: drawn, or the weights of a Hugging Face folder or of a run of ours."""

import re
from collections.abc import Collection
from pathlib import Path

import torch
from torch.utils._mode_utils import no_dispatch

from torchledger.spec import ModelSpec, Recipe
from torchledger.spec.huggingface import differences, from_config
from torchledger.trainer.checkpoint import latest_checkpoint, model_state
from torchledger.trainer.errors import CheckpointMismatch, SetupError
from torchledger.trainer.foreign_weights import check_foreign, load_foreign
from torchledger.trainer.in_shares import has_part, put
from torchledger.trainer.init import initialize, rehearse
from torchledger.trainer.manifest import MANIFEST_NAME, Manifest
from torchledger.trainer.model import Transformer
from torchledger.trainer.stored import open_part, read_piece

__all__ = ["check_initial_weights", "give_values", "rehearse_values"]

#: Parts that no checkpoint has to bring: they are drawn where it does not.
_OWN = re.compile(r"^prediction\.|\.lora_[ab]\.")


def check_initial_weights(place: Path, model: Transformer) -> tuple[str, ...]:
    """Find out whether `place` has the weights of a model, reading none of them.

    Args:
        place: a Hugging Face folder, a run's folder, or a checkpoint of a run.
        model: which it would be; on meta tensors as well.

    Returns:
        What is worth knowing, in words.

    Raises:
        SetupError: there are no weights, or they belong to a model that computes something else; fields are named.
        ForeignWeightsError, CheckpointError: missing, damaged, or of another shape.
    """
    checkpoint = _checkpoint(place)
    if checkpoint is None:
        state = _needed(model)
        _require_same(place, from_config(place), model.spec)
        return check_foreign(place, model.spec, {name: list(tensor.shape) for name, tensor in state.items()})
    manifest = Manifest.read(checkpoint)
    _require_same(checkpoint, manifest.identity.spec, model.spec)
    stored = {name: list(pieces[0][1].whole) for name, pieces in manifest.pieces("weights").items()}
    needed = {name: list(tensor.shape) for name, tensor in _needed(model, stored).items()}
    wrong = [name for name in dict.fromkeys((*needed, *stored)) if stored.get(name) != needed.get(name)]
    if wrong:
        listed = "; ".join(
            f"{n}: {stored.get(n, 'nothing')} stored, {needed.get(n, 'nothing')} needed" for n in wrong[:4]
        )
        raise CheckpointMismatch(f"the checkpoint {checkpoint} has other tensors: {listed}")
    return (f"the initial weights are those of {checkpoint}, after {manifest.step:,} steps",)


@torch.no_grad()
def give_values(model: Transformer, recipe: Recipe, place: Path | None) -> None:
    """Give every parameter its first value, in place: drawn, or read from `place` as far as it has it.

    Of a DTensor each rank reads its own part: of a Hugging Face tensor those rows or columns, unless the family mixes
    them (`weight_layout`); of a checkpoint the pieces that it needs any of, whole ones, for their checksums.

    Args:
        model: of whole tensors, or of DTensors of which every rank takes its share.
        recipe: initialisation and seed.
        place: as of `check_initial_weights`; nothing draws all values.

    Raises:
        SetupError, ForeignWeightsError, CheckpointError: as `check_initial_weights`.
    """
    if place is None:
        initialize(model, recipe.initialization, recipe.seed, base_size=recipe.mup_base_size)
        return
    check_initial_weights(place, model)
    checkpoint = _checkpoint(place)
    manifest = None if checkpoint is None else Manifest.read(checkpoint)
    pieces = {} if manifest is None else manifest.pieces("weights")
    state = _needed(model, pieces)
    initialize(model, recipe.initialization, recipe.seed, base_size=recipe.mup_base_size, leave=set(state))
    # Maps of files are no tensors of the run: whoever records the run's operations would count them with it.
    with no_dispatch():
        if checkpoint is None or manifest is None:
            load_foreign(place, model.spec, state)
            return
        files = open_part(checkpoint, manifest, "weights")
        for name, tensor in state.items():
            for file_name, piece in pieces[name]:
                if has_part(tensor, piece.shape, piece.offset):
                    put(tensor, read_piece(files[file_name], name, piece), piece.offset)


def rehearse_values(model: Transformer, place: Path | None) -> None:
    """Hold what `give_values` holds at its most, on fake tensors."""
    checkpoint = None if place is None else _checkpoint(place)
    stored = {} if checkpoint is None else Manifest.read(checkpoint).pieces("weights")
    rehearse(model, leave=() if place is None else set(_needed(model, stored)))


def meta_model(spec: ModelSpec, recipe: Recipe) -> Transformer:
    """The model on no memory, for its names and shapes."""
    from torchledger.trainer.step import build_model  # which imports this module

    with torch.device("meta"):
        return build_model(spec, recipe)


def _needed(model: Transformer, stored: Collection[str] = ()) -> dict[str, torch.Tensor]:
    """What has to come from `stored`: all but adapters and prediction layers that it does not have."""
    return {name: t for name, t in model_state(model).items() if name in stored or not _OWN.search(name)}


def _checkpoint(place: Path) -> Path | None:
    """The checkpoint that is meant; nothing where `place` is a Hugging Face folder.

    Raises:
        SetupError: it is neither.
    """
    if (place / MANIFEST_NAME).is_file():
        return place
    if (place / "config.json").is_file():
        return None
    latest = latest_checkpoint(place / "checkpoints") if (place / "checkpoints").is_dir() else None
    if latest is None:
        raise SetupError(
            f"initial_weights: {place} is neither a Hugging Face folder (config.json), a run with a whole checkpoint, "
            "nor a checkpoint; initial_weights=none draws them (a run that is resumed needs them no more)"
        )
    return latest


def _require_same(place: Path, stored: ModelSpec, spec: ModelSpec) -> None:
    fields = differences(stored, spec)
    if fields:
        raise SetupError(
            f"initial_weights: the model of {place} differs from {spec.name} in {', '.join(fields)}; "
            f"model = {str(place)!r} takes it as it is"
        )
