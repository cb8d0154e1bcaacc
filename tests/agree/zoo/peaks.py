"""Runs whose peak is predicted and measured: model × precision × optimizer × checkpointing × accumulation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from zoo.families import named
from zoo.model import ZooModel, checkpointed

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "loop": lambda parameters: torch.optim.AdamW(parameters, foreach=False, fused=False),
    "foreach": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
}
#: Models of every family that can be checkpointed, and a few that cannot.
MODELS = (
    "Llama 3", "Mistral", "Qwen3", "Gemma 2", "Gemma 3", "OLMo 2", "Phi-3", "Falcon", "BLOOM", "GPT-2", "GPT-NeoX",
    "OPT", "MPT", "StarCoder2", "Cohere", "Granite", "Nemotron", "MiniCPM3", "XGLM", "Mixtral", "Qwen3-MoE", "gpt-oss",
    "DeepSeek-V3", "OLMoE", "Mamba", "Mamba2", "Bamba", "BERT", "RoBERTa", "ALBERT", "ELECTRA", "T5", "BART", "ViT",
    "Swin", "ConvNeXt", "ResNet", "SegFormer", "Whisper", "wav2vec 2.0", "CLIP", "SigLIP", "BLIP", "LLaVA",
    "PaliGemma", "DETR", "DINOv2", "AST", "Longformer", "LED", "ProphetNet", "Jamba", "Qwen3-Next",
)  # fmt: skip
#: Runs whose peak is not predicted, and why.
MISSES = {
    "ViLT": "it draws the patches that it sees: a trace keeps the mask of those drawn, a run finds that it hides none",
}
NOT_CHECKPOINTED = frozenset({"ALBERT", "ConvNeXt", "ResNet", "SegFormer", "MPT"})


@dataclass(frozen=True)
class Run:
    """One training run of a tiny model.

    Attributes:
        name: the model's.
        precision: `fp32`, or `bf16` under autocast.
        optimizer: a key of `OPTIMIZERS`.
        checkpointing: whether every layer is recomputed.
        accumulation: micro-batches a step.
    """

    name: str
    precision: str
    optimizer: str
    checkpointing: bool
    accumulation: int

    def __str__(self) -> str:
        return "-".join(map(str, (self.name, self.precision, self.optimizer, self.checkpointing, self.accumulation)))

    def build(self) -> Callable[[], None]:
        """Make model, batch and optimizer; the step is returned."""
        zoo_model = named(self.name)
        model, batch = zoo_model.build("tiny"), zoo_model.example("tiny")
        if zoo_model.asks_values:  # made of Python numbers, which a trace knows
            batch.update(_whole_numbers(zoo_model))
        if self.checkpointing:
            checkpointed(model)
        optimizer = OPTIMIZERS[self.optimizer](model.parameters())

        def step() -> None:
            for _ in range(self.accumulation):
                with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16"):
                    output = model(**batch)
                    loss = output.loss if zoo_model.loss is None else zoo_model.loss(output, batch)
                (loss / self.accumulation).backward()
                del output, loss
            optimizer.step()
            optimizer.zero_grad()

        return step

    def twice(self) -> None:
        """Two steps from nothing, which is what is measured."""
        step = self.build()
        step()
        step()


def _whole_numbers(zoo_model: ZooModel) -> dict[str, torch.Tensor]:
    """The token ids and masks of the batch, made of Python numbers."""
    with _disable_current_modes():
        known = zoo_model.example("tiny").items()
        lists = {
            name: value.tolist() for name, value in known if torch.is_tensor(value) and not value.is_floating_point()
        }
    return {name: torch.tensor(numbers) for name, numbers in lists.items()}


def runs() -> Iterator[Run]:
    """Two runs of every model, so that all choices meet many models."""
    choices = list(itertools.product(("fp32", "bf16"), OPTIMIZERS, (False, True), (1, 2)))
    for index, name in enumerate(MODELS):
        for number in (7 * index % len(choices), (7 * index + 13) % len(choices)):
            precision, optimizer, checkpointing, accumulation = choices[number]
            yield Run(name, precision, optimizer, checkpointing and name not in NOT_CHECKPOINTED, accumulation)


def missed() -> Iterator[Run]:
    """A run of each model of `MISSES`."""
    for name in MISSES:
        yield Run(name, "bf16", "fused", checkpointing=True, accumulation=2)
