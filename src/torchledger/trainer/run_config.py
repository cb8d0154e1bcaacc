"""`RunConfig`: a training run as people write it in TOML. `setup.resolve` turns it into what is really done."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torchledger.spec import ModelSpec, Recipe, recipe_mistakes

__all__ = ["RunConfig", "SampleConfig", "stdlib_config_path"]


@dataclass(frozen=True, slots=True)
class SampleConfig:
    """The text that the model writes at the end of a run.

    Attributes:
        prompt: what it continues; empty begins a new document.
        length: tokens to write; 0 writes none.
        temperature: logits are divided by it; 0 always takes the likeliest token.
        top_k: only the k likeliest tokens are drawn from; 0 is all of them.
    """

    prompt: str = ""
    length: int = 128
    temperature: float = 0.8
    top_k: int = 50

    def __post_init__(self) -> None:
        if self.length < 0 or self.top_k < 0 or self.temperature < 0:
            raise ValueError("length, temperature and top_k must be at least 0")


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A training run.

    Attributes:
        model: a preset's name, a model file, or the model itself as a table.
        data: folder that `prepare` wrote.
        recipe: precision, optimizer, batch, tokens, seed.
        num_steps: optimizer steps of the whole run; 0 takes `recipe.num_tokens`.
        name: what the run is called; its folder is `<runs>/<name>-<UTC time>`.
        runs: where run folders are made.
        device: `auto` takes CUDA, then MPS, then the CPU.
        precision: `recipe` does as the recipe says; `auto` finds out which format is faster here and puts that into
            the recipe; a format puts itself there.
        attention: the same for the attention kernel.
        num_threads: CPU threads of torch; nothing takes torch's own choice, one per core. Another number gives other
            bits.
        eval_interval: steps between evaluations; 0 evaluates at the end only.
        eval_batches: micro-batches of validation data in one evaluation, always the same ones; 0 takes all.
        checkpoint_interval: steps between checkpoints; 0 saves at the end only.
        keep: checkpoints that stay.
        log_interval: steps between two lines of progress where they do not overwrite each other.
        sample: the text at the end.
    """

    model: ModelSpec | str
    data: Path
    recipe: Recipe = field(default_factory=Recipe)
    num_steps: int = 0
    name: str = "run"
    runs: Path = Path("runs")
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: Literal["recipe", "auto", "fp32", "bf16", "fp16"] = "recipe"
    attention: Literal["recipe", "auto", "math", "fused"] = "recipe"
    num_threads: int | None = None
    eval_interval: int = 100
    eval_batches: int = 20
    checkpoint_interval: int = 100
    keep: int = 2
    log_interval: int = 10
    sample: SampleConfig = field(default_factory=SampleConfig)

    def __post_init__(self) -> None:
        found = list(self._mistakes())
        if found:
            raise ValueError("; ".join(found))

    def _mistakes(self) -> Iterator[str]:
        yield from (f"recipe.{place} {message}" for place, message in recipe_mistakes(self.recipe))
        at_least = {"num_steps": 0, "eval_interval": 0, "eval_batches": 0, "checkpoint_interval": 0}
        at_least |= {"keep": 1, "log_interval": 1}
        for name, least in at_least.items():
            if getattr(self, name) < least:
                yield f"{name} must be at least {least}, is {getattr(self, name)}"
        if self.num_threads is not None and self.num_threads < 1:
            yield f"num_threads must be at least 1, is {self.num_threads}"
        if not self.name or "/" in self.name or "\\" in self.name or self.name.startswith("."):
            yield f"name {self.name!r} becomes a folder: it needs at least one letter, and has no slash or leading dot"
        if self.num_steps == 0 and self.recipe.num_tokens == 0:
            yield "how long to train is not said; give num_steps or recipe.num_tokens"
        if self.num_steps and self.recipe.num_tokens not in {0, self.num_steps * self.recipe.tokens_per_step}:
            yield (
                f"num_steps {self.num_steps} is {self.num_steps * self.recipe.tokens_per_step:,} tokens, but "
                f"recipe.num_tokens says {self.recipe.num_tokens:,}; give one of them"
            )


def stdlib_config_path() -> Path:
    """The configuration of the run that needs nothing but this machine: Python's standard library as data."""
    return Path(__file__).with_name("stdlib.toml")
