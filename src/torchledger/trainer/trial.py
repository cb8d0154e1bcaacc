"""A model of one layer, run forward and backward on a micro-batch: what the probes of a run's choices time."""

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from torchledger.spec import ModelSpec, Recipe
from torchledger.trainer.model import Transformer
from torchledger.trainer.narrowing import narrow
from torchledger.trainer.precision import autocast
from torchledger.trainer.step import build_model

__all__ = ["Trial", "one_layer"]

SMALL_VOCABULARY = 256  # of the model, whose head is not what is asked about


def one_layer(spec: ModelSpec, vocab_size: int = SMALL_VOCABULARY) -> ModelSpec:
    """The model with its first dense layer alone and a small vocabulary; where every layer has experts, a dense one."""
    index = next((i for i in range(spec.num_layers) if not spec.layer(i).is_moe), 0)
    return replace(
        spec,
        num_layers=1,
        num_prediction_layers=0,
        vocab_size=vocab_size,
        moe=None,
        attention=replace(spec.attention, window_pattern=(spec.layer(index).window,)),
    )


@dataclass(frozen=True, slots=True)
class Trial:
    """A model of one dense layer, mostly with a small vocabulary, and tokens as many as a micro-batch has."""

    model: Transformer
    batch: tuple[Tensor, ...]
    recipe: Recipe

    @classmethod
    def of(cls, spec: ModelSpec, recipe: Recipe, device: torch.device, vocab_size: int = SMALL_VOCABULARY) -> "Trial":
        """One for this model and recipe; its first dense layer stands for all, and its head has so many tokens."""
        with device:
            # each id in turn: a compiled embedding's gradient adds up rows, and one row for all would wait for itself
            ids = torch.arange(recipe.micro_batch_size * recipe.sequence_length) % vocab_size
            tokens = ids.view(recipe.micro_batch_size, recipe.sequence_length)
            model = build_model(one_layer(spec, vocab_size), replace(recipe, trainable=(), load_balance=0.0))
        for parameter in model.parameters():
            nn.init.constant_(parameter, 0.01)
        narrow(model, recipe.precision)
        return cls(model, (tokens,) * (2 + recipe.document_mask), recipe)

    def run(self) -> float:
        """Seconds of forward and backward, of all that the device has to do for them."""
        begin, device = time.perf_counter(), self.batch[0].device
        with autocast(device, self.recipe.precision):
            loss = self.model(*self.batch)
        loss.backward()
        self.model.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begin
