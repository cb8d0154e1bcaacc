"""Weights of a Hugging Face folder, in and out: `config.json` beside one or several safetensors files.

Reading takes one tensor at a time, so that it needs little more memory than the model itself. It runs no code of the
folder: `pytorch_model.bin` is a pickle and is refused.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from torchledger.spec import ModelSpec
from torchledger.spec.huggingface import to_config
from torchledger.trainer.durable import partial_path, publish, write_text
from torchledger.trainer.errors import ForeignWeightsError
from torchledger.trainer.foreign_names import Pairing, pairings
from torchledger.trainer.in_shares import put

__all__ = ["ForeignWeights", "check_foreign", "load_foreign", "save_foreign"]

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
#: What checkpoints hold beside parameters: tables that follow from the config, masks, a head that is the embedding.
_DERIVED = re.compile(r"(rotary_emb\.inv_freq|attn\.(masked_)?bias|attention\.(masked_)?bias)$")
#: Prefixes under which a family's tensors stand in some files: none, or a language model inside of a larger one.
_PREFIXES = ("", "language_model.", "model.language_model.")
_OTHER_PARTS = re.compile(r"^(model\.)?(vision_tower|multi_modal_projector|vision_model|visual)\.")


@dataclass(frozen=True, slots=True)
class ForeignWeights:
    """The tensors of a folder, by name; each is read when it is asked for.

    Attributes:
        folder: where they are.
        model_type: the family that its `config.json` names.
        files: name -> the file it is in.
    """

    folder: Path
    model_type: str
    files: Mapping[str, Path]

    @classmethod
    def open(cls, folder: Path) -> "ForeignWeights":
        """The names in the folder.

        Raises:
            ForeignWeightsError: no config.json, no safetensors, an index that names a file that is not there, a damaged
                file, or a config whose model computes what none of ours does.
        """
        config = _config(folder)
        return cls(folder, config["model_type"], dict(_names(folder)))

    def find(self, name: str) -> str | None:
        """The name under which a tensor of the family is stored here, if it is.

        Older files leave the name of the outermost module out (`h.0.ln_1.weight` of GPT-2), a language model inside of
        a larger one has more of it; GPT-NeoX's head had another name.
        """
        inside = name.partition(".")[2]
        candidates = [*(prefix + name for prefix in _PREFIXES), *(prefix + inside for prefix in _PREFIXES)]
        if name == "embed_out.weight":
            candidates.append("lm_head.weight")
        return next((each for each in candidates if each in self.files), None)

    def about(self, name: str) -> tuple[tuple[int, ...], str]:
        """Shape of one tensor, and the name of its format.

        Raises:
            ForeignWeightsError: the file is damaged.
        """
        try:
            with safe_open(self.files[name], framework="pt") as stream:
                part = stream.get_slice(name)
                return tuple(part.get_shape()), part.get_dtype()
        except (OSError, SafetensorError) as error:
            raise ForeignWeightsError(f"cannot read {name} of {self.files[name]}: {error}") from error

    def read(self, name: str) -> Tensor:
        """One tensor, in the format it is stored in.

        Raises:
            ForeignWeightsError: the file is damaged.
        """
        try:
            with safe_open(self.files[name], framework="pt") as stream:
                tensor: Tensor = stream.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ForeignWeightsError(f"cannot read {name} of {self.files[name]}: {error}") from error
        return tensor


def check_foreign(folder: Path, spec: ModelSpec, shapes: Mapping[str, list[int]]) -> tuple[str, ...]:
    """Find out whether a Hugging Face folder has the weights of a model, reading none of them.

    Args:
        folder: with `config.json` and safetensors.
        spec: the model.
        shapes: of our tensors by name, a tied head once.

    Returns:
        What is worth knowing, in words: how many tensors, in which formats, and what would not be taken.

    Raises:
        ForeignWeightsError: tensors are missing, of another shape, or there and of no use to this model.
        SpecError: the family has no place for one of ours.
    """
    stored = ForeignWeights.open(folder)
    found = _found(stored, spec, shapes)
    facts = [stored.about(name) for name, _ in found]
    wrong = [
        f"{name}: {list(shape)} stored, {needed} needed"
        for (name, pair), (shape, _) in zip(found, facts, strict=True)
        if (needed := _stored_shape(pair.layouts, [shapes[each] for each in pair.ours])) != list(shape)
    ]
    if wrong:
        raise ForeignWeightsError(f"{folder}: tensors of another size than the model's: {'; '.join(wrong[:4])}")
    formats = ", ".join(sorted({dtype for _, dtype in facts}))
    notes = [f"{len(found)} tensors of {folder} ({formats}) are the initial weights"]
    return (*notes, *_unused(stored, {name for name, _ in found}, spec))


@torch.no_grad()
def load_foreign(folder: Path, spec: ModelSpec, state: Mapping[str, Tensor]) -> None:
    """Copy the weights of a Hugging Face folder into `state`, converted to its formats; all names or an error.

    Args:
        folder: with `config.json` and safetensors.
        spec: the model that `state` belongs to.
        state: our tensors by name, a tied head once; whole ones, or DTensors of which every rank takes its share.

    Raises:
        ForeignWeightsError, SpecError: as `check_foreign`.
    """
    check_foreign(folder, spec, {name: list(tensor.shape) for name, tensor in state.items()})
    stored = ForeignWeights.open(folder)
    for name, pair in _found(stored, spec, state):
        ours = [state[each] for each in pair.ours]
        for target, part in zip(ours, pair.split(spec, stored.read(name), [len(each) for each in ours]), strict=True):
            put(target, part)


def save_foreign(
    folder: Path,
    spec: ModelSpec,
    state: Mapping[str, Tensor],
    *,
    dtype: torch.dtype | None = None,
    tokens: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """Write `config.json` and one safetensors file that transformers loads, whole or not at all.

    Args:
        folder: new or empty.
        spec: the model.
        state: our tensors by name, a tied head once; on any device.
        dtype: format of the stored weights; nothing keeps theirs.
        tokens: further entries of the config, as `eos_token_id`.

    Returns:
        What the folder does not say of the model, in words.

    Raises:
        SpecError: no known family describes the model.
        ForeignWeightsError: the folder is taken or cannot be written to.
    """
    config, notes = to_config(spec)
    kept = {name: tensor for name, tensor in state.items() if not name.startswith("prediction")}
    pairs = pairings(config["model_type"], spec, kept)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ForeignWeightsError(f"{folder} is there already and not empty; name another folder")
    stored = {}
    for pair in pairs:
        tensor = pair.join(spec, [kept[name].detach().cpu() for name in pair.ours])
        stored[pair.theirs] = tensor.to(dtype or tensor.dtype).contiguous()
    formats = {str(tensor.dtype).removeprefix("torch.") for tensor in stored.values()}
    config |= {"torch_dtype": formats.pop() if len(formats) == 1 else "float32", **(tokens or {})}
    partial = partial_path(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        save_file(stored, partial / WEIGHTS, metadata={"format": "pt"})
        with (partial / WEIGHTS).open("rb+") as stream:
            os.fsync(stream.fileno())
        write_text(partial / "config.json", json.dumps(config, indent=2) + "\n")
        if folder.exists():
            folder.rmdir()
        publish(partial, folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise ForeignWeightsError(f"cannot write {folder}: {getattr(error, 'strerror', None) or error}") from error
    return notes


def _found(stored: ForeignWeights, spec: ModelSpec, names: Iterable[str]) -> list[tuple[str, Pairing]]:
    """Each stored tensor that the model needs, and what it is here.

    Raises:
        ForeignWeightsError: some are missing.
    """
    pairs = pairings(stored.model_type, spec, names)
    found = [(stored.find(pair.theirs), pair) for pair in pairs]
    missing = [pair.theirs for name, pair in found if name is None]
    if missing:
        raise ForeignWeightsError(f"{stored.folder} lacks {_listed(missing)}; it has {_listed(sorted(stored.files))}")
    return [(name, pair) for name, pair in found if name is not None]


def _stored_shape(layouts: tuple[str, ...], ours: list[list[int]]) -> list[int]:
    rows, rest = sum(each[0] for each in ours), ours[0][1:]
    return [*rest, rows] if "transposed" in layouts and rest else [rows, *rest]


def _config(folder: Path) -> dict[str, Any]:
    """The folder's config, refused where the model would compute something else here."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ForeignWeightsError(f"{folder}: no readable config.json, so no Hugging Face model: {error}") from None
    inner = config.get("text_config") if isinstance(config, dict) else None
    said = {**config, **inner} if isinstance(inner, dict) else config
    if not isinstance(said, dict) or not isinstance(said.get("model_type"), str):
        raise ForeignWeightsError(f"{folder}: config.json names no model_type")
    otherwise = {
        "scale_attn_by_inverse_layer_idx": (said.get("scale_attn_by_inverse_layer_idx"), (None, False)),
        "routed_scaling_factor": (said.get("routed_scaling_factor"), (None, 1, 1.0)),
        "n_group": (said.get("n_group"), (None, 1)),
        # Falcon's slopes are multiplied with 1/sqrt(head_size) and rounded to bfloat16, BLOOM's are ALiBi's own
        "alibi": (said.get("alibi") and said["model_type"] == "falcon", (None, False)),
        "quantization_config": (said.get("quantization_config"), (None,)),
    }
    wrong = [f"{name} = {value!r}" for name, (value, built) in otherwise.items() if value not in built]
    if wrong:
        raise ForeignWeightsError(
            f"{folder}: {', '.join(wrong)} is not built here, so its weights would mean another model"
        )
    return said


def _names(folder: Path) -> list[tuple[str, Path]]:
    index = folder / INDEX
    if index.is_file():
        try:
            weight_map = json.loads(index.read_text("utf-8"))["weight_map"]
            files = sorted(set(weight_map.values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ForeignWeightsError(f"{index} is damaged: {error!r}") from None
    else:
        files = [WEIGHTS]
    lacking = [name for name in files if not (folder / name).is_file()]
    if lacking:
        pickles = sorted(path.name for path in folder.glob("*.bin"))
        hint = f"; {pickles[0]} is a pickle, which can run code: convert it to safetensors first" if pickles else ""
        raise ForeignWeightsError(f"{folder} lacks {_listed(lacking)}{hint}")
    found = []
    for name in files:
        try:
            with safe_open(folder / name, framework="pt") as stream:
                found += [(key, folder / name) for key in stream.keys()]  # noqa: SIM118  # it is no mapping
        except (OSError, SafetensorError) as error:
            raise ForeignWeightsError(f"cannot read {folder / name}: {error}") from None
    return found


def _unused(stored: ForeignWeights, used: set[str], spec: ModelSpec) -> list[str]:
    """What of the folder was not taken, in words.

    Raises:
        ForeignWeightsError: something that the model would need to be the same.
    """
    rest = [name for name in stored.files if name not in used and not _DERIVED.search(name)]
    if spec.tied_embeddings:
        rest = [name for name in rest if name not in {"lm_head.weight", "embed_out.weight"}]
    others = [name for name in rest if _OTHER_PARTS.match(name)]
    unknown = [name for name in rest if name not in others]
    if unknown:
        raise ForeignWeightsError(
            f"{stored.folder} has tensors that {spec.name} has no place for: {_listed(unknown)}; without them it would "
            "be another model"
        )
    return [f"{len(others)} tensors of other parts than the language model were left out"] if others else []


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
