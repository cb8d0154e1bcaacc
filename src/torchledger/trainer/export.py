"""A checkpoint's weights as one safetensors file, whatever number of ranks saved it."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from torchledger import config
from torchledger.trainer.checkpoint import checkpoint_at
from torchledger.trainer.durable import partial_path, publish
from torchledger.trainer.errors import CheckpointError
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.stored import open_part, read_whole
from torchledger.trainer.tensorfile import Shape, write_one_by_one

__all__ = ["EXPORT_FORMATS", "Exported", "export_weights", "rounded"]

#: Formats that weights can be written in.
EXPORT_FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that was written.

    Attributes:
        path: the file.
        checkpoint: what it was written from.
        step: updates that its weights have had.
        num_tensors: in the file; a tied head is there once.
        num_parameters: numbers in them, buffers included.
        num_bytes: size of the file.
    """

    path: Path
    checkpoint: Path
    step: int
    num_tensors: int
    num_parameters: int
    num_bytes: int


def export_weights(source: Path, out: Path, precision: str | None = None) -> Exported:
    """Write the weights of a checkpoint to the file `out`, whole or not at all, one tensor at a time in memory.

    The names are our own; the header says `format`, `step`, and the model as JSON (`spec`).

    Args:
        source: a checkpoint, or a run's folder, which means its newest.
        out: the file; one that is there is replaced.
        precision: `fp32`, `bf16`, `fp16`: floating-point numbers are rounded to it; nothing leaves them as they are.

    Raises:
        CheckpointError: no whole checkpoint, a damaged one, numbers too large for fp16, or a file that cannot be
            written.
    """
    checkpoint = checkpoint_at(source)
    manifest = Manifest.read(checkpoint)
    pieces, files = manifest.pieces("weights"), open_part(checkpoint, manifest, "weights")
    to = None if precision is None else EXPORT_FORMATS[precision]

    def make(name: str) -> Tensor:
        return rounded(name, read_whole(files, name, pieces[name]), to)

    shapes = {}
    for name, found in pieces.items():
        stored: torch.dtype = getattr(torch, found[0][1].dtype)
        shapes[name] = Shape(found[0][1].whole, to if to is not None and stored.is_floating_point else stored)
    words = {"step": str(manifest.step), "spec": json.dumps(config.to_dict(manifest.identity.spec))}
    partial = partial_path(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_one_by_one(partial, shapes, make, words)
        publish(partial, out)
    except OSError as error:
        raise CheckpointError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    count = sum(torch.Size(shape.sizes).numel() for shape in shapes.values())
    return Exported(out, checkpoint, manifest.step, len(shapes), count, out.stat().st_size)


def rounded(name: str, tensor: Tensor, to: torch.dtype | None) -> Tensor:
    """A tensor in another format; nothing, and what is no floating-point number, stay as they are.

    Raises:
        CheckpointError: numbers that the format cannot hold.
    """
    if to is None or not tensor.is_floating_point():
        return tensor
    rounded = tensor.to(to)
    if tensor.isfinite().all() and not rounded.isfinite().all():
        largest = tensor.abs().max().item()
        raise CheckpointError(
            f"{name} has numbers up to {largest:g}, and the format only goes to {torch.finfo(to).max:g}; export it as "
            "bf16 or fp32"
        )
    return rounded
