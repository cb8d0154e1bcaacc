"""`from_config`: a Hugging Face `config.json` as a `ModelSpec`, without the network and without transformers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchledger.config import closest
from torchledger.spec.check import require
from torchledger.spec.huggingface import gpt, llama, mixture
from torchledger.spec.huggingface.keys import Keys, known_model_types
from torchledger.spec.huggingface.parts import Parts, assemble
from torchledger.spec.model import ModelSpec, SpecError

_READERS: Mapping[str, Callable[[Keys], Parts]] = {
    "llama": llama.llama,
    "mistral": llama.mistral,
    "qwen2": llama.qwen2,
    "qwen3": llama.qwen3,
    "gemma": llama.gemma,
    "gemma2": llama.gemma2,
    "gemma3_text": llama.gemma3,
    "olmo": llama.olmo,
    "olmo2": llama.olmo2,
    "phi3": llama.phi3,
    "stablelm": llama.stablelm,
    "gpt2": gpt.gpt2,
    "gpt_bigcode": gpt.gpt_bigcode,
    "gptj": gpt.gptj,
    "gpt_neox": gpt.gpt_neox,
    "opt": gpt.opt,
    "bloom": gpt.bloom,
    "falcon": gpt.falcon,
    "phi": gpt.phi,
    "starcoder2": gpt.starcoder2,
    "mixtral": mixture.mixtral,
    "qwen2_moe": mixture.qwen2_moe,
    "qwen3_moe": mixture.qwen3_moe,
    "deepseek_v2": mixture.deepseek_v2,
    "deepseek_v3": mixture.deepseek_v3,
}


def from_config(config: Mapping[str, Any] | Path | str, *, name: str | None = None) -> ModelSpec:
    """The model that a Hugging Face config describes, as transformers would build it.

    Missing keys mean transformers' own defaults; sizes that were taken for a default are told in the result's `notes`,
    and so is what a `ModelSpec` cannot say and does not change the parameters.

    Args:
        config: the object, or the path of a `config.json` or of a folder with one.
        name: what to call the model; nothing takes the config's `_name_or_path` or the folder's name.

    Raises:
        SpecError: no such file, not JSON, no model or one that cannot be described, an unknown `model_type`; or every
            wrong value at once.
    """
    if isinstance(config, Mapping):
        values, where, called = config, "config", ""
    else:
        path = _file(Path(config))
        values, where = _object(path), str(path)
        called = path.resolve().parent.name if path.name == "config.json" else path.stem
    model_type, values, notes = _decoder(values, where)
    keys = Keys.of(values, model_type, where)
    parts = _READERS[model_type](keys)
    spec = assemble(keys, parts)
    keys.require_no_mistakes()
    said = values.get("_name_or_path")
    called = name or called or (said if isinstance(said, str) else "") or model_type
    spec = replace(spec, name=called, source=where, notes=(*notes, *spec.notes))
    require(spec)
    return spec


def _file(path: Path) -> Path:
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise SpecError(f"{path}: the folder has no config.json")
        return path / "config.json"
    return path


def _object(path: Path) -> Mapping[str, Any]:
    try:
        values = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: not UTF-8 text, so not a config.json") from None
    except json.JSONDecodeError as error:
        raise SpecError(f"{path}: not JSON: {error}") from None
    if not isinstance(values, Mapping):
        raise SpecError(f"{path}: a config.json is one JSON object, this is a {type(values).__name__}")
    return values


def _decoder(values: Mapping[str, Any], where: str) -> tuple[str, Mapping[str, Any], tuple[str, ...]]:
    """The type and keys of the language model in a config, and what else is in it."""
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise SpecError(f"{where}: `model_type` is missing, so this is not the config.json of a model")
    if values.get("is_encoder_decoder") is True:
        raise SpecError(f"{where}: model_type {model_type!r} is an encoder-decoder; only decoders can be described")
    inner = values.get("text_config")
    inner = inner if isinstance(inner, Mapping) else None
    if model_type == "gemma3":
        if inner is None:
            raise SpecError(f"{where}: a gemma3 config has its language model in `text_config`, which is missing")
        return "gemma3_text", {**inner, **_tying(values)}, ("the vision part is left out",)
    if model_type in _READERS:
        return model_type, values, ()
    known = sorted(known_model_types())
    near = closest(model_type, known)
    hint = f"{f'did you mean {near!r}? ' if near else ''}known: {', '.join(known)}"
    if inner is not None and inner.get("model_type") in _READERS:
        hint = f"its text_config is a {inner['model_type']}: give that object alone"
    raise SpecError(f"{where}: unknown model_type {model_type!r}; {hint}")


def _tying(values: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the head is tied, which a config of several parts says outside of `text_config`."""
    return {"tie_word_embeddings": values["tie_word_embeddings"]} if "tie_word_embeddings" in values else {}
