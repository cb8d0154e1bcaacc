"""Weights of a Hugging Face folder, in and out: `config.json` beside one or several safetensors files.

Reading takes one tensor at a time, so that it needs little more memory than the model itself. It runs no code of the
folder: `pytorch_model.bin` is a pickle and is refused.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping
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
from torchledger.trainer.foreign_names import pairings

__all__ = ["ForeignWeights", "load_foreign", "save_foreign"]

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
        candidates = [prefix + name for prefix in _PREFIXES]
        candidates += [
            "language_model." + name.partition(".")[2],
            name.partition(".")[2],
            "model.language_model." + name.partition(".")[2],
        ]
        if name == "embed_out.weight":
            candidates.append("lm_head.weight")
        return next((each for each in candidates if each in self.files), None)

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


@torch.no_grad()
def load_foreign(folder: Path, spec: ModelSpec, state: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Copy the weights of a Hugging Face folder into `state`, converted to its formats; all names or an error.

    Args:
        folder: with `config.json` and safetensors.
        spec: the model that `state` belongs to.
        state: our tensors by name, a tied head once.

    Returns:
        What is worth knowing, in words: how many tensors, in which formats, and what was not taken.

    Raises:
        ForeignWeightsError: tensors are missing, of another shape, or there and of no use to this model.
        SpecError: the family has no place for one of ours.
    """
    stored = ForeignWeights.open(folder)
    pairs = pairings(stored.model_type, spec, state)
    missing = [pair.theirs for pair in pairs if stored.find(pair.theirs) is None]
    if missing:
        raise ForeignWeightsError(f"{folder} lacks {_listed(missing)}; it has {_listed(sorted(stored.files))}")
    used, formats, wrong = set(), set(), []
    for pair in pairs:
        name = stored.find(pair.theirs)
        assert name is not None
        used.add(name)
        tensor = stored.read(name)
        formats.add(str(tensor.dtype).removeprefix("torch."))
        ours = [state[each] for each in pair.ours]
        rows = [each.shape[0] for each in ours]
        if tensor.numel() != sum(each.numel() for each in ours) or _stored_shape(pair.layouts, ours) != list(
            tensor.shape
        ):
            wrong.append(f"{name}: {list(tensor.shape)} stored, {_stored_shape(pair.layouts, ours)} needed")
            continue
        for target, part in zip(ours, pair.split(spec, tensor, rows), strict=True):
            target.copy_(part)
    if wrong:
        raise ForeignWeightsError(f"{folder}: tensors of another size than the model's: {'; '.join(wrong[:4])}")
    notes = [f"{len(used)} tensors of {folder} ({', '.join(sorted(formats))}) are the initial weights"]
    return (*notes, *_unused(stored, used, spec))


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


def _stored_shape(layouts: tuple[str, ...], ours: list[Tensor]) -> list[int]:
    rows, rest = sum(each.shape[0] for each in ours), list(ours[0].shape[1:])
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
