"""Checkpoints: a folder each, whole or not there, whatever kills the process.

    checkpoints/
        step-00000200/
            manifest.json           identity, position, shapes, checksums
            weights.safetensors     parameters and buffers by name; the file to share
            optimizer.safetensors   the optimizer's state by parameter name
            extra.safetensors       what else goes on from step to step (a loss scale); often not there
        .step-00000250.partial/     being written, or left by a kill: never read, cleared at the next start

Where several ranks train, each writes its share (`weights-rank-00001.safetensors`, see `shards`); any number of ranks,
in any layout, reads it. A checkpoint is written under a hidden name, synced to disk file by file, and renamed as the
last act. safetensors hold the optimizer's state too: reading them runs no code, needs no torch, keeps every format and
name, and copies nothing. There is no random state to save, because every stream is a function of the seed and a counter
(`seeds.py`).

Every function that takes a `group` is entered by all its ranks together; `None` is one process.
"""

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchledger.trainer.durable import partial_path, publish, write_text
from torchledger.trainer.errors import CheckpointError, CheckpointMismatch
from torchledger.trainer.manifest import MANIFEST_NAME, Manifest
from torchledger.trainer.model import Transformer
from torchledger.trainer.optimizer import first_state, load_optimizer_state, optimizer_state
from torchledger.trainer.stored import Piece, open_part, read_whole, write_parts

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = [
    "checkpoint_at",
    "checkpoints",
    "clear_leftovers",
    "latest_checkpoint",
    "load_extra",
    "load_optimizer",
    "load_weights",
    "model_state",
    "prune",
    "save_checkpoint",
    "state_of",
    "write_checkpoint",
]

_REPLACED = ".replaced"
_DELETED = ".deleted"
_COMPILED = "_orig_mod."  # what torch.compile puts before the names of a module it wraps


def model_state(model: Transformer) -> dict[str, Tensor]:
    """Parameters and the buffers that the spec does not determine, by name, no copies; a tied head is there once.

    Names are those of the plain model, also where layers are compiled.
    """
    by_tensor: dict[int, str] = {}
    state: dict[str, Tensor] = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        by_tensor.setdefault(id(tensor), name)
    return {name.replace(_COMPILED, ""): state[name] for name in by_tensor.values()}


def state_of(model: Transformer, optimizer: Optimizer, extra: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Everything that a checkpoint holds, as `<part>/<name>`; no copies."""
    parts = {
        "weights": model_state(model),
        "optimizer": {n.replace(_COMPILED, ""): t for n, t in optimizer_state(model, optimizer).items()},
        "extra": extra or {},
    }
    return {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}


def save_checkpoint(
    folder: Path,
    model: Transformer,
    optimizer: Optimizer,
    manifest: Manifest,
    *,
    keep: int,
    extra: Mapping[str, Tensor] | None = None,
    group: "ProcessGroup | None" = None,
) -> Path:
    """Write the checkpoint `folder/step-<manifest.step>` and delete all but the `keep` newest and the permanent ones.

    Args:
        folder: made if it is not there.
        model: whose parameters and buffers are written; whole tensors, or DTensors of any layout.
        optimizer: whose state is written.
        manifest: what it is; its `files` are filled in here.
        keep: how many checkpoints stay, this one included; at least 1.
        extra: further tensors, the same on every rank.
        group: the ranks that save together; a group whose CPU tensors go through gloo.

    Raises:
        CheckpointError: a full disk or a folder that cannot be written to, on any rank. Earlier checkpoints are whole.
    """
    return write_checkpoint(folder, state_of(model, optimizer, extra), manifest, keep=keep, group=group)


def write_checkpoint(
    folder: Path, state: dict[str, Tensor], manifest: Manifest, *, keep: int, group: "ProcessGroup | None" = None
) -> Path:
    """Do what `save_checkpoint` says with what `state_of` gave, or with a copy of it.

    Raises:
        CheckpointError: as `save_checkpoint`.
    """
    assert keep >= 1
    target = folder / f"step-{manifest.step:08d}"
    if group is not None:
        from torchledger.trainer.shards import save_shards

        save_shards(folder, state, manifest, keep, group)
        return target
    try:
        partial = begin(target)
        pieces = {key: Piece.of(tensor) for key, tensor in state.items()}
        finish(partial, target, manifest.with_files(write_parts(partial, pieces)))
    except OSError as error:
        raise abandon(target, error) from error
    prune(folder, keep)
    return target


def begin(target: Path) -> Path:
    """Make the empty hidden folder in which the checkpoint `target` is written.

    Raises:
        OSError: it cannot be made.
    """
    partial = partial_path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    return partial


def finish(partial: Path, target: Path, manifest: Manifest) -> None:
    """Write the manifest, then rename; a checkpoint that is there already steps aside first and goes last.

    Raises:
        OSError: the disk is full, or the folder cannot be written to.
    """
    write_text(partial / MANIFEST_NAME, manifest.to_json())  # syncs the file and then the folder
    aside = target.with_name(f".{target.name}{_REPLACED}")
    if target.exists():
        shutil.rmtree(aside, ignore_errors=True)
        target.rename(aside)
    publish(partial, target)
    shutil.rmtree(aside, ignore_errors=True)


def abandon(target: Path, error: Exception) -> CheckpointError:
    """Clear what there is of a checkpoint that could not be saved, and say so."""
    shutil.rmtree(partial_path(target), ignore_errors=True)
    reason = getattr(error, "strerror", None) or str(error)
    latest = latest_checkpoint(target.parent)
    consolation = "there is no earlier one" if latest is None else f"the previous checkpoint {latest} is whole"
    return CheckpointError(f"cannot save {target}: {reason}; {consolation}")


def prune(folder: Path, keep: int) -> None:
    """Delete all but the `keep` newest checkpoints and the permanent ones.

    A kill between saving and this leaves one too many.
    """
    for manifest, old in _whole(folder)[keep:]:
        if not manifest.permanent:
            _delete(old)


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """(step, path) of every whole checkpoint in `folder`, the newest first; half ones are passed over."""
    return [(manifest.step, path) for manifest, path in _whole(folder)]


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint in `folder`, if there is one."""
    return next((path for _, path in _newest_first(folder)), None)


def checkpoint_at(path: Path) -> Path:
    """The checkpoint that a path means: itself, or of a run's folder the newest whole one.

    Raises:
        CheckpointError: there is none.
    """
    found = path if (path / MANIFEST_NAME).exists() else latest_checkpoint(path / "checkpoints")
    if found is None:
        raise CheckpointError(f"no whole checkpoint in {path}")
    return found


def _newest_first(folder: Path) -> Iterator[tuple[Manifest, Path]]:
    for path in sorted(folder.glob("step-*"), reverse=True):
        with contextlib.suppress(CheckpointError):
            yield Manifest.read(path), path


def _whole(folder: Path) -> list[tuple[Manifest, Path]]:
    return sorted(_newest_first(folder), key=lambda found: found[0].step, reverse=True)


def clear_leftovers(folder: Path) -> list[Path]:
    """Delete what a killed process left half-written or half-deleted, and put back what it was replacing."""
    cleared = []
    for path in folder.glob(".step-*"):
        original = folder / path.name.removeprefix(".").removesuffix(_REPLACED)
        if path.name.endswith(_REPLACED) and not original.exists():
            path.rename(original)
            continue
        shutil.rmtree(path, ignore_errors=True)
        cleared.append(path)
    return cleared


def load_weights(path: Path, model: Transformer, group: "ProcessGroup | None" = None) -> Manifest:
    """Read the weights of the checkpoint at `path` into `model`, however many ranks wrote it and hold the model now.

    Raises:
        CheckpointMismatch: it is of another model; the differing fields are named.
        CheckpointError: missing, half or damaged.
    """
    manifest = Manifest.read(path)
    before = manifest.identity
    changes = before.model_changes(type(before)(model.spec, before.recipe, before.data, before.numerics))
    if changes:
        listed = "; ".join(map(str, changes))
        raise CheckpointMismatch(f"the checkpoint {path} is of another model: {listed}")
    state = model_state(model)
    stored = {name: list(pieces[0][1].whole) for name, pieces in manifest.pieces("weights").items()}
    _check_names(path, stored, {name: list(tensor.shape) for name, tensor in state.items()})
    _fill(path, manifest, "weights", state, group)
    return manifest


def load_optimizer(
    path: Path, manifest: Manifest, model: Transformer, optimizer: Optimizer, group: "ProcessGroup | None" = None
) -> None:
    """Read the optimizer's state of the checkpoint at `path` into `optimizer`, which is over the parameters of `model`.

    Every format is as it was written. What an update rule lays out in its own way is laid out so; of the rest, what is
    as large as its parameter is laid out as the parameter is, and anything else is whole on every rank.

    Raises:
        CheckpointError: damaged.
    """
    stored = manifest.pieces("optimizer")
    if group is None:
        files = open_part(path, manifest, "optimizer")
        tensors = {name: read_whole(files, name, pieces) for name, pieces in stored.items()}
    else:
        from torchledger.trainer.shards import blank

        parameters = {name.replace(_COMPILED, ""): p for name, p in model.named_parameters()}
        tensors = {}
        for path_of_state, pieces in stored.items():
            name, _, key = path_of_state.rpartition(".")
            like = first_state(optimizer, parameters[name]).get(key)
            tensors[path_of_state] = blank(pieces[0][1], parameters[name], like)
        _fill(path, manifest, "optimizer", tensors, group)
    load_optimizer_state(model, optimizer, tensors)


def load_extra(path: Path, manifest: Manifest) -> dict[str, Tensor]:
    """The further tensors of the checkpoint at `path`, whole, on the CPU; every rank reads them for itself.

    Raises:
        CheckpointError: damaged.
    """
    files = open_part(path, manifest, "extra")
    return {name: read_whole(files, name, pieces) for name, pieces in manifest.pieces("extra").items()}


@torch.no_grad()
def _fill(
    path: Path, manifest: Manifest, part: str, targets: Mapping[str, Tensor], group: "ProcessGroup | None"
) -> None:
    """Read a part's tensors into the tensors that are there."""
    if group is not None:
        from torchledger.trainer.shards import load_shards

        load_shards(path, manifest, {f"{part}/{name}": tensor for name, tensor in targets.items()}, group)
        return
    files = open_part(path, manifest, part)
    for name, pieces in manifest.pieces(part).items():
        targets[name].copy_(read_whole(files, name, pieces))


def _check_names(path: Path, stored: Mapping[str, list[int]], needed: Mapping[str, list[int]]) -> None:
    wrong = [name for name in dict.fromkeys((*needed, *stored)) if stored.get(name) != needed.get(name)]
    if wrong:
        listed = "; ".join(
            f"{n}: {stored.get(n, 'nothing')} stored, {needed.get(n, 'nothing')} needed" for n in wrong[:5]
        )
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise CheckpointMismatch(f"the checkpoint {path} has other tensors: {listed}{more}")


def _delete(path: Path) -> None:
    """Hide, then delete, so that a kill in between leaves nothing that looks like a checkpoint."""
    hidden = path.with_name(f".{path.name}{_DELETED}")
    with contextlib.suppress(OSError):
        path.rename(hidden)
        shutil.rmtree(hidden)
