"""Runs whose peak is predicted and measured: model × precision × optimizer × checkpointing × accumulation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from zoo.families import named
from zoo.model import checkpointed

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
    "Swin", "ConvNeXt", "ResNet", "SegFormer", "Whisper", "wav2vec 2.0", "CLIP", "SigLIP",
)  # fmt: skip
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


def runs() -> Iterator[Run]:
    """Two runs of every model, so that all choices meet many models."""
    choices = list(itertools.product(("fp32", "bf16"), OPTIMIZERS, (False, True), (1, 2)))
    for index, name in enumerate(MODELS):
        for number in (7 * index % len(choices), (7 * index + 13) % len(choices)):
            precision, optimizer, checkpointing, accumulation = choices[number]
            yield Run(name, precision, optimizer, checkpointing and name not in NOT_CHECKPOINTED, accumulation)
