"""`ZooModel`: one architecture of the zoo: its class, a tiny and the published configuration, what a batch of it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

Config = Any
Batch = dict[str, Any]
Size = Literal["tiny", "published"]

_PUBLISHED = Path(__file__).parents[2] / "published" / "transformers_parameters.json"


@dataclass(frozen=True)
class ZooModel:
    """One architecture.

    Attributes:
        name: the model in print (`Llama 3`).
        family: what kind of architecture it is (`dense`, `mixture` ...).
        class_name: the class in transformers, whose `config_class` takes the settings.
        tiny: settings of a model that runs in a moment.
        published: settings of the published size: those that differ from the defaults of transformers, or the name of a
            row of tests/published/transformers_parameters.json.
        size_name: name of the published size (`llama-3-8b`).
        batch: a batch of what the model takes, for a configuration and a size.
        loss: of output and batch; none where the class makes its own.
        note: what is special about it.
        settings: settings of both sizes.
        asks_values: whether its code decides by the values of what it takes, which meta tensors do not have.
    """

    name: str
    family: str
    class_name: str
    tiny: dict[str, Any]
    published: dict[str, Any] | str
    size_name: str
    batch: Callable[[Config, Size], Batch]
    loss: Callable[[Any, Any], torch.Tensor] | None = None
    note: str = ""
    asks_values: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    def config(self, size: Size) -> Config:
        """The configuration object of that size."""
        settings = self.tiny if size == "tiny" else self.published
        if isinstance(settings, str):
            settings = _published(settings)
        settings = {**settings, **self.settings}
        return self.class_in_transformers().config_class(**settings)

    def class_in_transformers(self) -> Any:
        """The class."""
        import transformers

        return getattr(transformers, self.class_name)

    def build(self, size: Size) -> torch.nn.Module:
        """The model: tiny ones with random weights, published ones on the meta device, in training mode."""
        with torch.device("cpu" if size == "tiny" else "meta"), quiet():
            torch.manual_seed(0)
            return self.class_in_transformers()(self.config(size)).train()

    def example(self, size: Size) -> Batch:
        """A batch for it, of real numbers."""
        torch.manual_seed(1)
        return self.batch(self.config(size), size)


def _published(name: str) -> dict[str, Any]:
    rows = json.loads(_PUBLISHED.read_text(encoding="utf-8"))["models"]
    config = next(row["config"] for row in rows if row["preset"] == name)
    return {key: value for key, value in config.items() if key not in {"model_type", "architectures"}}


def checkpointed(model: Any) -> None:
    """Let a model of transformers recompute its layers, whatever its version calls that."""
    new, old = "activation_checkpointing_enable", "gradient_checkpointing_enable"
    with quiet():
        getattr(model, new if hasattr(model, new) else old)()


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back what transformers logs about missing faster kernels."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)
