"""`RunConfig`: a training run as people write it in TOML. `setup.resolve` turns it into what is really done."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from torchledger.config import ConfigError
from torchledger.spec import ModelSpec, Recipe, SpecError, Strategy, check, recipe_mistakes, strategy_mistakes
from torchledger.spec import load as load_model
from torchledger.spec.check import Mistake

__all__ = ["MixturePart", "RunConfig", "SampleConfig", "TokenFileConfig", "stdlib_config_path"]

_MOST_THREADS = 4096  # more than machines have cores; starting a hundred thousand ends the process without a word


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
        _refuse("sample", self.find_mistakes(_fields(self)))

    @staticmethod
    def find_mistakes(given: Mapping[str, Any]) -> Iterator[Mistake]:
        """What is wrong with the fields that are given, as (path, message)."""
        for name in ("length", "temperature", "top_k"):
            if name in given and not 0 <= given[name] < math.inf:
                yield name, f"must be at least 0 and finite, is {given[name]}"


@dataclass(frozen=True, slots=True)
class TokenFileConfig:
    """What a token file that is trained on cannot say itself. A folder that `prepare` wrote needs none of it.

    Attributes:
        dtype: type of the ids of a file without a header (nanoGPT's .bin, OLMo's .npy): `uint8` to `int64`.
        end_of_text_id: the id that ends each document.
        validation: token file to validate on; without one the end of the training tokens is cut off for it.
        validation_fraction: how much of them, then.
        tokenizer: their tokenizer.json, to write samples with.
    """

    dtype: Literal["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"] | None = None
    end_of_text_id: int | None = None
    validation: Path | None = None
    validation_fraction: float = 0.05
    tokenizer: Path | None = None

    def __post_init__(self) -> None:
        _refuse("token_file", self.find_mistakes(_fields(self)))

    @staticmethod
    def find_mistakes(given: Mapping[str, Any]) -> Iterator[Mistake]:
        """What is wrong with the fields that are given, as (path, message)."""
        if not 0 < given.get("validation_fraction", 0.05) < 1:
            yield "validation_fraction", f"must lie between 0 and 1, is {given['validation_fraction']}"
        if (given.get("end_of_text_id") or 0) < 0:
            yield "end_of_text_id", f"must be at least 0, is {given['end_of_text_id']}"


@dataclass(frozen=True, slots=True)
class MixturePart:
    """One part of a mixture.

    Attributes:
        data: folder that `prepare` wrote, or a token file.
        weight: its share of the sequences, relative to the other parts' weights.
    """

    data: Path
    weight: float = 1.0

    def __post_init__(self) -> None:
        _refuse("mixture", self.find_mistakes(_fields(self)))

    @staticmethod
    def find_mistakes(given: Mapping[str, Any]) -> Iterator[Mistake]:
        """What is wrong with the fields that are given, as (path, message)."""
        if not 0 < given.get("weight", 1.0) < math.inf:
            yield "weight", f"must be above 0 and finite, is {given['weight']}; leave out what shall not be drawn from"


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A training run.

    Attributes:
        model: a preset's name, a model file, or the model itself as a table.
        data: folder that `prepare` wrote, or a token file: one of ours, or of another project's (see `foreign`).
        recipe: precision, optimizer, batch, tokens, seed.
        initial_weights: a Hugging Face folder (safetensors), or a run or checkpoint of ours, whose weights the run
            begins with; nothing draws them.
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
        strategy: how the work is spread over ranks; all ones takes every rank that `torchrun` started as data parallel.
        token_file: what a token file given as `data` cannot say itself.
        mixture: further prepared folders or token files, drawn from by weight; empty trains on `data` alone.
        data_weight: the share of `data` itself, relative to the weights of the mixture.
        permanent_interval: steps between checkpoints that no later one deletes; 0 keeps none for ever.
        async_checkpoint: whether checkpoints are written while training goes on.
        deterministic: whether an operation that does not repeat bit for bit is refused.
        compile: what runs compiled: `no`, `layers` each by itself, or the `model` as one graph; `auto` finds out what
            pays.
        max_non_finite: steps in a row whose loss or gradient norm may be no number; each of them changes nothing, the
            last ends the run.
        choices: file of multiple-choice questions (JSON lines) that are answered with each evaluation.
    """

    model: ModelSpec | str
    data: Path
    recipe: Recipe = field(default_factory=Recipe)
    num_steps: int = 0
    name: str = "run"
    runs: Path = Path("runs")
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: Literal[
        "recipe", "auto", "fp32", "tf32", "bf16", "fp16", "bf16-master", "bf16-moments", "bf16-pure", "fp8"
    ] = "recipe"
    attention: Literal["recipe", "auto", "math", "fused"] = "recipe"
    num_threads: int | None = None
    eval_interval: int = 100
    eval_batches: int = 20
    checkpoint_interval: int = 100
    keep: int = 2
    log_interval: int = 10
    sample: SampleConfig = field(default_factory=SampleConfig)
    strategy: Strategy = field(default_factory=Strategy)
    token_file: TokenFileConfig = field(default_factory=TokenFileConfig)
    mixture: tuple[MixturePart, ...] = ()
    data_weight: float = 1.0
    permanent_interval: int = 0
    async_checkpoint: bool = False
    deterministic: bool = False
    compile: Literal["no", "layers", "model", "auto"] = "no"
    max_non_finite: int = 1
    choices: Path | None = None
    initial_weights: Path | None = None

    def __post_init__(self) -> None:
        _refuse("run", _own_mistakes(_fields(self)))

    @staticmethod
    def find_mistakes(given: Mapping[str, Any]) -> Iterator[Mistake]:
        """What is wrong with the fields that are given, as (path, message); the model is looked up and checked too."""
        model = None
        try:
            model = load_model(given["model"]) if isinstance(given.get("model"), str) else given.get("model")
        except (SpecError, ConfigError) as error:
            yield "model", str(error)
        yield from (() if model is None else ((f"model.{place}", text) for place, text in check.mistakes(model)))
        yield from _own_mistakes(given, model)


def _fields(config: Any) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in fields(config)}


def _refuse(what: str, mistakes: Iterable[Mistake]) -> None:
    found = list(mistakes)
    if found:
        raise ConfigError(what, found)


def _own_mistakes(given: Mapping[str, Any], model: ModelSpec | None = None) -> Iterator[Mistake]:
    """All but those of the model itself. What ties two fields is judged where both are given."""
    recipe = given.get("recipe")
    found = [] if recipe is None else recipe_mistakes(recipe, model)
    yield from ((f"recipe.{place}", message) for place, message in found)
    if (strategy := given.get("strategy")) is not None:
        yield from ((f"strategy.{place}", message) for place, message in strategy_mistakes(strategy))
    at_least = {
        "num_steps": 0,
        "eval_interval": 0,
        "eval_batches": 0,
        "checkpoint_interval": 0,
        "permanent_interval": 0,
    }
    at_least |= {"max_non_finite": 1, "keep": 1, "log_interval": 1, "num_threads": 1}
    for name, least in at_least.items():
        value = given.get(name)
        if value is not None and value < least:
            yield name, f"must be at least {least}, is {value}"
    if (given.get("num_threads") or 0) > _MOST_THREADS:
        yield "num_threads", f"must be at most {_MOST_THREADS:,}, is {given['num_threads']:,}; one per core is usual"
    if not 0 < given.get("data_weight", 1.0) < math.inf:
        yield "data_weight", f"must be above 0 and finite, is {given['data_weight']}"
    name = given.get("name", "run")
    if not name or "/" in name or "\\" in name or name.startswith("."):
        yield "name", f"{name!r} becomes a folder: it needs at least one letter, and has no slash or leading dot"
    if recipe is not None and "num_steps" in given and not found:
        yield from _length_mistakes(given["num_steps"], recipe)


def _length_mistakes(num_steps: int, recipe: Recipe) -> Iterator[Mistake]:
    if num_steps == 0 and recipe.num_tokens == 0:
        unsaid = "is 0 or not given, and so is recipe.num_tokens: how long to train is not said; give one of them"
        yield "num_steps", unsaid
    if num_steps > 0 and recipe.num_tokens not in {0, num_steps * recipe.tokens_per_step}:
        tokens = num_steps * recipe.tokens_per_step
        message = (
            f"{num_steps} is {tokens:,} tokens, but recipe.num_tokens says {recipe.num_tokens:,}; give one of them"
        )
        yield "num_steps", message


def stdlib_config_path() -> Path:
    """The configuration of the run that needs nothing but this machine: Python's standard library as data."""
    return Path(__file__).with_name("stdlib.toml")
