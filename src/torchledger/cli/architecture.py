"""`count config.json --trace`: the architecture as transformers builds it, without weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click


def is_architecture(name: str) -> bool:
    """Whether MODEL is a Hugging Face config.json or a folder with one."""
    path = Path(name)
    return (path.suffix == ".json" and path.is_file()) or (path / "config.json").is_file()


def builder(name: str, *, batch_size: int, sequence_length: int | None) -> Callable[[], dict[str, Any]]:
    """A function that builds model and batch of a configuration.

    Args:
        name: the file or its folder.
        batch_size: rows of the batch.
        sequence_length: tokens; without, what the model takes, at most 8192.

    Raises:
        ModuleNotFoundError: transformers is not there.
        click.UsageError: it does not know the architecture.
    """
    import transformers

    path = Path(name)
    path = path / "config.json" if path.is_dir() else path
    try:
        config = transformers.AutoConfig.from_pretrained(str(path), local_files_only=True)
    except (ValueError, KeyError, OSError) as error:
        first = str(error).partition("\n")[0]
        raise click.UsageError(f"transformers {transformers.__version__} cannot read {path}: {first}") from error

    def build() -> dict[str, Any]:
        model = _model(transformers, config)
        batch = example_batch(model, config, batch_size, sequence_length)
        return {"model": model.train(), "batch": batch, "loss": loss_of}

    return build


def loss_of(output: Any, _batch: Any) -> Any:
    """The model's own loss, the mean of its first output where it makes none."""
    found = output.get("loss") if isinstance(output, Mapping) else None
    if found is not None:
        return found
    first = output[0] if isinstance(output, (tuple, list)) else next(iter(output.values()))
    return first.float().mean()


def example_batch(model: Any, config: Any, batch_size: int, sequence_length: int | None) -> dict[str, Any]:
    """A batch of the model's main input, with labels where its forward takes them; its data is of no account.

    Raises:
        click.UsageError: nothing is known about that kind of input.
    """
    import inspect

    import torch

    takes = inspect.signature(model.forward).parameters
    text = config.get_text_config()
    length = sequence_length or min(getattr(text, "max_position_embeddings", None) or 8192, 8192)
    ids = torch.zeros(batch_size, length, dtype=torch.int64)
    main = model.main_input_name
    batch: dict[str, Any] = {}
    if main == "input_ids":
        batch["input_ids"] = ids
    if "pixel_values" in takes and (main == "pixel_values" or type(model).__name__.startswith("CLIP")):
        vision = getattr(config, "vision_config", config)
        size = vision.image_size
        height, width = (size, size) if isinstance(size, int) else size
        batch["pixel_values"] = torch.zeros(batch_size, getattr(vision, "num_channels", 3), height, width)
    if main == "input_features":
        batch["input_features"] = torch.zeros(batch_size, config.num_mel_bins, 2 * config.max_source_positions)
    if not batch:
        raise click.UsageError(
            f"nothing is known about a batch of `{main}`; write a file.py with a function that returns (model, batch), "
            "and count file.py:function --trace"
        )
    if "labels" in takes:
        per_row = type(model).__name__.endswith("Classification") and "Token" not in type(model).__name__
        labels_length = min(length, getattr(config, "max_target_positions", None) or length)
        batch["labels"] = ids[:, 0].clone() if per_row else ids[:, :labels_length].clone()
    return batch


def _model(transformers: Any, config: Any) -> Any:
    names = config.architectures or ()
    cls = next((found for name in names if (found := getattr(transformers, name, None)) is not None), None)
    if cls is not None:
        return cls(config)
    for auto in (transformers.AutoModelForCausalLM, transformers.AutoModel):
        if type(config) in auto._model_mapping:  # noqa: SLF001  # transformers has no public list of what it knows
            return auto.from_config(config)
    raise click.UsageError(f"transformers {transformers.__version__} has no model of type {config.model_type}")
