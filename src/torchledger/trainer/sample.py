"""Text from a model: token after token, drawn from a stream of its own."""

from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from torchledger.spec import Recipe
from torchledger.trainer.checkpoint import checkpoint_at, load_weights
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.model import Transformer
from torchledger.trainer.narrowing import narrow
from torchledger.trainer.precision import autocast
from torchledger.trainer.run_config import SampleConfig
from torchledger.trainer.run_folder import RunFolder
from torchledger.trainer.seeds import stream_seed
from torchledger.trainer.step import build_model
from torchledger.trainer.tokenizer import Tokenizer, load_tokenizer

__all__ = ["load_model", "sample", "write_text_from"]


def load_model(path: Path, device: torch.device) -> tuple[Transformer, Manifest]:
    """The model of a checkpoint, ready to predict.

    Args:
        path: a checkpoint, or a run's folder, which means its newest checkpoint.
        device: where it shall be.

    Raises:
        CheckpointError: there is none, or it is half or damaged.
    """
    checkpoint = checkpoint_at(path)
    identity = Manifest.read(checkpoint).identity
    with device:
        model = build_model(identity.spec, replace(identity.recipe, attention="math"))
        narrow(model, identity.recipe.precision)
    manifest = load_weights(checkpoint, model)
    return model.eval(), manifest


def write_text_from(path: Path, config: SampleConfig, device: torch.device, seed: int | None = None) -> str:
    """Let the model of a checkpoint or run write.

    Args:
        path: a checkpoint in a run's folder, or the folder.
        config: prompt, length, temperature.
        device: where to compute.
        seed: nothing takes the run's own, which repeats the sample of its last step.

    Returns:
        What it wrote, the prompt left out.

    Raises:
        CheckpointError: no whole checkpoint.
        RunFolderError: the checkpoint is in no run's folder, so that there is no tokenizer.
        TokenizerError: the tokenizer cannot be read.
    """
    tokenizer = load_tokenizer(RunFolder.open(path).tokenizer_path)
    model, manifest = load_model(path, device)
    recipe = manifest.identity.recipe
    return sample(model, tokenizer, config, recipe, seed=recipe.seed if seed is None else seed, step=manifest.step)


@torch.no_grad()
def sample(
    model: Transformer, tokenizer: Tokenizer, config: SampleConfig, recipe: Recipe, *, seed: int, step: int
) -> str:
    """Continue the prompt, up to the end of the document or `config.length` tokens; the prompt is left out.

    The prompt follows an end-of-text token, as every document in training does. The model sees the last
    `recipe.sequence_length` tokens. The same weights, seed and step give the same text.
    """
    device = model.embedding.weight.device
    generator = torch.Generator("cpu").manual_seed(stream_seed(seed, "sample", step))
    prompt = [tokenizer.end_of_text_id, *tokenizer.encode(config.prompt)]
    written: list[int] = []
    was_training = model.training
    model.eval()
    try:
        for _ in range(config.length):
            context = torch.tensor([(prompt + written)[-recipe.sequence_length :]], device=device)
            with autocast(device, recipe.precision):
                logits = model(context)[0, -1]
            token = _draw(logits[: tokenizer.vocab_size].float().cpu(), config, generator)
            if token == tokenizer.end_of_text_id:
                break
            written.append(token)
    finally:
        model.train(was_training)
    return tokenizer.decode(written)


def _draw(logits: Float[Tensor, " vocabulary"], config: SampleConfig, generator: torch.Generator) -> int:
    """One token id: the likeliest at temperature 0, else drawn from the `top_k` likeliest."""
    if config.temperature == 0:
        return int(logits.argmax())
    if 0 < config.top_k < len(logits):
        smallest: Int[Tensor, ""] = torch.topk(logits, config.top_k).values[-1]
        logits = logits.masked_fill(logits < smallest, -torch.inf)
    # in double precision and below zero, so that the smallest temperature is the likeliest token and not 0/0
    scaled = (logits.double() - logits.max()) / config.temperature
    probabilities = torch.softmax(scaled, dim=-1).float()
    return int(torch.multinomial(probabilities, 1, generator=generator))
