"""A checkpoint as a folder that transformers loads: its family's config.json, its weights, and its tokenizer."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchledger.trainer.checkpoint import checkpoint_at, model_state
from torchledger.trainer.durable import write_text
from torchledger.trainer.errors import ForeignWeightsError, RunFolderError
from torchledger.trainer.export import EXPORT_FORMATS, rounded
from torchledger.trainer.foreign_weights import save_foreign
from torchledger.trainer.linear import ADAPTER_ALPHA, Linear
from torchledger.trainer.run_folder import RunFolder
from torchledger.trainer.sample import load_model
from torchledger.trainer.tokenizer import Tokenizer, TokenizerError, load_tokenizer

__all__ = ["ExportedFolder", "export_huggingface", "merged_state"]


@dataclass(frozen=True, slots=True)
class ExportedFolder:
    """A folder that was written.

    Attributes:
        path: the folder.
        checkpoint: what it was written from.
        step: updates that its weights have had.
        model_type: its family.
        num_parameters: numbers in its weights.
        notes: what it does not say of the model, or says otherwise.
    """

    path: Path
    checkpoint: Path
    step: int
    model_type: str
    num_parameters: int
    notes: tuple[str, ...]


def export_huggingface(source: Path, out: Path, precision: str | None = None) -> ExportedFolder:
    """Write a checkpoint as the Hugging Face folder `out`: `config.json`, `model.safetensors`, `tokenizer.json`.

    Adapters are added to the matrices that they stand beside.

    Args:
        source: a checkpoint, or a run's folder, which means its newest.
        out: new or empty.
        precision: `fp32`, `bf16`, `fp16`: weights are rounded to it; nothing leaves them as they are.

    Raises:
        CheckpointError: no whole checkpoint, a damaged one, or numbers too large for fp16.
        SpecError: no family that transformers knows describes the model; the message says what the nearest would lose.
        ForeignWeightsError: the folder is taken or cannot be written to.
    """
    checkpoint = checkpoint_at(source)
    model, manifest = load_model(checkpoint, torch.device("cpu"))
    to = None if precision is None else EXPORT_FORMATS[precision]
    state = {name: rounded(name, tensor, to) for name, tensor in merged_state(model).items()}
    tokenizer, path = _tokenizer(checkpoint)
    end = {} if tokenizer is None else {"eos_token_id": tokenizer.end_of_text_id}
    notes = save_foreign(out, manifest.identity.spec, state, tokens=end)
    notes += _write_tokenizer(out, tokenizer, path)
    model_type = json.loads((out / "config.json").read_text("utf-8"))["model_type"]
    count = sum(tensor.numel() for tensor in state.values())
    return ExportedFolder(out, checkpoint, manifest.step, model_type, count, notes)


@torch.no_grad()
def merged_state(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model by name, adapters added to their matrices: W + (α/r)·B A (LoRA, equation 3)."""
    state = {name: tensor for name, tensor in model_state(model).items() if ".lora_" not in name}  # type: ignore[arg-type]
    for name, module in model.named_modules():
        if isinstance(module, Linear) and module.rank:
            beside = module.lora_b.weight.float() @ module.lora_a.weight.float() * (ADAPTER_ALPHA / module.rank)
            weight = module.weight
            state[f"{name}.weight"] = (weight.float() + beside).to(weight.dtype)
    return state


def _tokenizer(checkpoint: Path) -> tuple[Tokenizer | None, Path | None]:
    """The tokenizer of the run that a checkpoint is in, if it is in one that has any."""
    try:
        path = RunFolder.open(checkpoint).tokenizer_path
        return (load_tokenizer(path), path) if path.is_file() else (None, None)
    except (RunFolderError, TokenizerError):
        return None, None


def _write_tokenizer(out: Path, tokenizer: Tokenizer | None, path: Path | None) -> tuple[str, ...]:
    """Put the tokenizer beside the weights, where it is one that transformers can read; what there is to say of it."""
    if tokenizer is None or path is None:
        return ("the run's tokenizer is not known, so that none is in the folder",)
    if tokenizer.kind != "bpe":
        return ("ids are bytes, for which transformers has no tokenizer: none is in the folder",)
    text = path.read_text("utf-8")
    by_id = {each["id"]: each["content"] for each in json.loads(text).get("added_tokens", [])}
    said: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    if tokenizer.end_of_text_id in by_id:
        said["eos_token"] = by_id[tokenizer.end_of_text_id]
    try:
        write_text(out / "tokenizer.json", text)
        write_text(out / "tokenizer_config.json", json.dumps(said, indent=2) + "\n")
    except OSError as error:
        raise ForeignWeightsError(f"cannot write the tokenizer into {out}: {error.strerror}") from error
    return ()
