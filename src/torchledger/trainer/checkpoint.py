"""Checkpoints: a folder each, whole or not there, whatever kills the process.

    checkpoints/
        step-00000200/
            manifest.json           identity, position, shapes, checksums
            weights.safetensors     parameters and buffers by name; the file to share
            optimizer.safetensors   the optimizer's state by parameter name
        .step-00000250.partial/     being written, or left by a kill: never read, cleared at the next start

A checkpoint is written under a hidden name, synced to disk file by file, and renamed as the last act. safetensors hold
the optimizer's state too: reading them runs no code, needs no torch, keeps every format and name, and copies nothing.
There is no random state to save, because every stream is a function of the seed and a counter (`seeds.py`).
"""

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.optim import Optimizer

from torchledger.trainer.durable import partial_path, publish, write_text
from torchledger.trainer.errors import CheckpointError, CheckpointMismatch
from torchledger.trainer.manifest import MANIFEST_NAME, Manifest, StoredFile, checksum
from torchledger.trainer.model import Transformer
from torchledger.trainer.optimizer import load_optimizer_state, optimizer_state

__all__ = [
    "checkpoints",
    "clear_leftovers",
    "latest_checkpoint",
    "load_optimizer",
    "load_weights",
    "model_state",
    "prune",
    "save_checkpoint",
]

WEIGHTS_NAME = "weights.safetensors"
OPTIMIZER_NAME = "optimizer.safetensors"
_REPLACED = ".replaced"
_DELETED = ".deleted"


def model_state(model: Transformer) -> dict[str, Tensor]:
    """Parameters and the buffers that the spec does not determine, by name, no copies; a tied head is there once."""
    by_tensor: dict[int, str] = {}
    state: dict[str, Tensor] = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        by_tensor.setdefault(id(tensor), name)
    return {name: state[name] for name in by_tensor.values()}


def save_checkpoint(folder: Path, model: Transformer, optimizer: Optimizer, manifest: Manifest, *, keep: int) -> Path:
    """Write the checkpoint `folder/step-<manifest.step>` and delete all but the `keep` newest.

    Args:
        folder: made if it is not there.
        model: whose parameters and buffers are written.
        optimizer: whose state is written.
        manifest: what it is; its `files` are filled in here.
        keep: how many checkpoints stay, this one included; at least 1.

    Raises:
        CheckpointError: a full disk or a folder that cannot be written to. Earlier checkpoints are whole.
    """
    assert keep >= 1
    target = folder / f"step-{manifest.step:08d}"
    partial = partial_path(target)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        files = {
            WEIGHTS_NAME: _write(partial / WEIGHTS_NAME, model_state(model)),
            OPTIMIZER_NAME: _write(partial / OPTIMIZER_NAME, optimizer_state(model, optimizer)),
        }
        whole = Manifest(manifest.step, manifest.identity, manifest.metrics, files)
        write_text(partial / MANIFEST_NAME, whole.to_json())  # syncs the file and then the folder
        _put_in_place(partial, target)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(f"cannot save {target}: {_reason(error)}; {_consolation(folder)}") from error
    prune(folder, keep)
    return target


def prune(folder: Path, keep: int) -> None:
    """Delete all but the `keep` newest checkpoints; a kill between saving and this leaves one too many."""
    for _, old in checkpoints(folder)[keep:]:
        _delete(old)


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """(step, path) of every whole checkpoint in `folder`, the newest first; half ones are passed over."""
    found = []
    for path in folder.glob("step-*"):
        with contextlib.suppress(CheckpointError):
            found.append((Manifest.read(path).step, path))
    return sorted(found, reverse=True)


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint in `folder`, if there is one."""
    found = checkpoints(folder)
    return found[0][1] if found else None


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


def load_weights(path: Path, model: Transformer) -> Manifest:
    """Read the weights of the checkpoint at `path` into `model`.

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
    tensors = _read(path / WEIGHTS_NAME, manifest.files[WEIGHTS_NAME])
    _check_names(
        path, {name: list(t.shape) for name, t in tensors.items()}, {n: list(t.shape) for n, t in state.items()}
    )
    with torch.no_grad():
        for name, tensor in tensors.items():
            state[name].copy_(tensor)
    return manifest


def load_optimizer(path: Path, manifest: Manifest, model: Transformer, optimizer: Optimizer) -> None:
    """Read the optimizer's state of the checkpoint at `path` into `optimizer`, which is over the parameters of `model`.

    Raises:
        CheckpointError: damaged.
    """
    load_optimizer_state(model, optimizer, _read(path / OPTIMIZER_NAME, manifest.files[OPTIMIZER_NAME]))


def _write(path: Path, tensors: Mapping[str, Tensor]) -> StoredFile:
    """Write one file of tensors and sync it to disk."""
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())
    about = {
        name: {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
        for name, tensor in tensors.items()
    }
    return StoredFile(path.stat().st_size, checksum(path), about)


def _read(path: Path, file: StoredFile) -> dict[str, Tensor]:
    try:
        if checksum(path) != file.crc32:
            raise CheckpointError(f"{path} is damaged: its checksum does not match the manifest's")
        with safe_open(path, framework="pt") as stream:
            return {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118  # it is no mapping
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read {path}: {_reason(error)}") from error


def _check_names(path: Path, stored: Mapping[str, list[int]], needed: Mapping[str, list[int]]) -> None:
    wrong = [name for name in dict.fromkeys((*needed, *stored)) if stored.get(name) != needed.get(name)]
    if wrong:
        listed = "; ".join(
            f"{n}: {stored.get(n, 'nothing')} stored, {needed.get(n, 'nothing')} needed" for n in wrong[:5]
        )
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise CheckpointMismatch(f"the checkpoint {path} has other tensors: {listed}{more}")


def _put_in_place(partial: Path, target: Path) -> None:
    """Rename a finished checkpoint to its name; one that is there already steps aside first and goes last."""
    aside = target.with_name(f".{target.name}{_REPLACED}")
    if target.exists():
        shutil.rmtree(aside, ignore_errors=True)
        target.rename(aside)
    publish(partial, target)
    shutil.rmtree(aside, ignore_errors=True)


def _delete(path: Path) -> None:
    """Hide, then delete, so that a kill in between leaves nothing that looks like a checkpoint."""
    hidden = path.with_name(f".{path.name}{_DELETED}")
    with contextlib.suppress(OSError):
        path.rename(hidden)
        shutil.rmtree(hidden)


def _reason(error: Exception) -> str:
    strerror = getattr(error, "strerror", None)
    return strerror or str(error)


def _consolation(folder: Path) -> str:
    latest = latest_checkpoint(folder)
    return "there is no earlier one" if latest is None else f"the previous checkpoint {latest} is whole"
