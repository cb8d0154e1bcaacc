"""From a `RunConfig` to what is really done: everything is looked up, checked and decided before memory is taken."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import psutil
import torch

from torchledger import spec as specs
from torchledger.meter import device as devices
from torchledger.meter import set_threads
from torchledger.spec import ModelSpec, Recipe, SpecError, Strategy
from torchledger.trainer.compiled import Compiled, choose_compile
from torchledger.trainer.errors import SetupError
from torchledger.trainer.identity import Identity, numerics
from torchledger.trainer.initial_weights import check_initial_weights, meta_model
from torchledger.trainer.kernel import choose_kernel
from torchledger.trainer.layout import local_recipe, require_layout, strategy_for
from torchledger.trainer.mixed_data import MixedPart, data_identity, mixture_words, open_mixture
from torchledger.trainer.precision_choice import choose_precision
from torchledger.trainer.questions import read_questions
from torchledger.trainer.ranks import Ranks
from torchledger.trainer.run_config import RunConfig
from torchledger.trainer.run_data import RunData, open_run_data
from torchledger.trainer.stream import document_words
from torchledger.trainer.unbuilt import require_built_recipe

__all__ = ["Setup", "resolve"]


@dataclass(frozen=True, slots=True)
class Setup:
    """A run that can begin.

    Attributes:
        config: as asked, with every `auto` and preset replaced by what it came to; the same on every resume.
        spec: the model.
        recipe: precision, kernel and length decided.
        data: the training and validation tokens.
        device: where it trains.
        assumptions: what was decided without being asked, in words.
        ranks: which process of how many this is.
        mixture: the further parts that are trained on.
    """

    config: RunConfig
    spec: ModelSpec
    recipe: Recipe
    data: RunData
    device: torch.device
    assumptions: tuple[str, ...]
    ranks: Ranks = field(default_factory=Ranks)
    mixture: tuple[MixedPart, ...] = ()

    @property
    def strategy(self) -> Strategy:
        """How the work is spread over the ranks that run; `config` has what was asked, which other ranks may run."""
        return strategy_for(self.config.strategy, self.ranks)

    @property
    def local_recipe(self) -> Recipe:
        """The recipe as one rank runs it; of one process that of the run."""
        return local_recipe(self.recipe, self.strategy)

    @property
    def compiled(self) -> Compiled:
        """What runs compiled in training."""
        return cast("Compiled", self.config.compile)

    @property
    def is_writing(self) -> bool:
        """Whether the model writes a sample at the end; one whose tokens ranks split takes no text of any length."""
        return self.config.sample.length > 0 and not self.strategy.sequence_parallel

    @property
    def num_windows(self) -> int:
        """Windows of the recipe's sequence length in the training tokens of `data`."""
        return (self.data.train.num_tokens - 1) // self.recipe.sequence_length

    @property
    def epochs(self) -> float:
        """How many times the run passes over the training data; 1.5 is once and a half. Of a mixture, over `data`."""
        weight = self.config.data_weight
        share = weight / (weight + sum(part.weight for part in self.mixture))
        return self.recipe.num_steps * self.recipe.batch_size * share / self.num_windows

    @property
    def identity(self) -> Identity:
        """What determines the run bit for bit, with the thread count that is set now."""
        weight, has_documents = self.config.data_weight, self.recipe.document_mask
        data = data_identity(self.data, weight, self.mixture, has_documents=has_documents)
        fixed = self.config.deterministic
        compiled = self.compiled
        here = numerics(self.device, self.ranks.size, self.strategy, deterministic=fixed, compiled=compiled)
        return Identity(self.spec, self.recipe, data, here)


def resolve(config: RunConfig, ranks: Ranks = Ranks()) -> Setup:  # noqa: B008  # a frozen value
    """Look up and check everything that a run needs, and decide what was left open.

    Sets torch's thread count, which probes and identity depend on. Allocates no model. Of many ranks the first does
    this and hands `Setup.config` to the others, who then decide nothing: two that measure might decide differently.

    Args:
        config: the run.
        ranks: which process of how many this is.

    Raises:
        SetupError: data too short or of another vocabulary; layers that shall be compiled and cannot be.
        SpecError, ConfigError: no such model, or one that cannot be.
        PrepareError: no prepared data in the folder, not whole, or damaged.
        TokenFileError: a token file that is none, or is not what was told of it.
        TokenizerError: the tokenizer of a token file cannot be read.
        DeviceError: a device that is not there.
        PrecisionError: a format that this device cannot train in.
        ForeignWeightsError, CheckpointError: initial weights that are not there or do not fit.
        ChoicesError: questions that are not there, or are none.
    """
    spec = config.model if isinstance(config.model, ModelSpec) else specs.load(config.model)
    specs.check.require(spec)
    specs.require_recipe(config.recipe, spec)
    data = open_run_data(config.data, config.token_file, spec.vocab_size)
    mixture = open_mixture(config.mixture, data, config.token_file, spec.vocab_size)
    for each in (data, *(part.data for part in mixture)):
        _check_data(spec, config.recipe, each)
    data = data.proven()
    mixture = tuple(replace(part, data=part.data.proven()) for part in mixture)
    _check_choices(config, data)
    device = devices.resolve(config.device)
    if config.num_threads is not None:
        set_threads(config.num_threads)
    recipe, reasons = _decide(config, spec, device)
    _require_run(spec, recipe, strategy_for(config.strategy, ranks), ranks)
    compiled = choose_compile(config.compile, spec, recipe, device, is_alone=ranks.is_alone)
    resolved = replace(
        config,
        model=spec,
        recipe=recipe,
        num_steps=0,
        device=cast("devices.DeviceName", device.type),
        precision="recipe",
        attention="recipe",
        compile=compiled.what,
        num_threads=torch.get_num_threads(),
        sample=config.sample if data.tokenizer_path is not None else replace(config.sample, length=0),
    )
    begun = (
        ()
        if config.initial_weights is None
        else check_initial_weights(config.initial_weights, meta_model(spec, recipe))
    )
    setup = Setup(resolved, spec, recipe, data, _own(device, ranks), (), ranks, mixture)
    said = (*_epochs(setup), *document_words(setup), *_length(setup), *_spread(setup))
    return replace(
        setup, assumptions=(*data.assumptions, *begun, *reasons, *compiled.reasons, *_threads(config), *said)
    )


def _require_run(spec: ModelSpec, recipe: Recipe, strategy: Strategy, ranks: Ranks) -> None:
    """Refuse what is not built and what these ranks cannot run, both at once.

    Raises:
        SpecError: with every such field in it.
    """
    told = []
    for check in (partial(require_built_recipe, recipe), partial(require_layout, spec, recipe, strategy, ranks)):
        try:
            check()
        except SpecError as error:
            told.append(str(error))
    if told:
        raise SpecError("\n".join(told))


def _threads(config: RunConfig) -> list[str]:
    """Why there are as many threads as there are, where nobody said how many. A probe might take others each time."""
    if config.num_threads is not None:
        return []
    cores = psutil.cpu_count(logical=False)
    of = "" if cores is None else f" on {cores} physical cores"
    return [f"threads {torch.get_num_threads()}{of}: torch's own choice, not probed, since their number decides bits"]


def _check_choices(config: RunConfig, data: RunData) -> None:
    """Read the questions of the run, so that a mistake in them does not wait for the first evaluation."""
    if config.choices is None:
        return
    if data.tokenizer_path is None:
        raise SetupError(f"{config.choices} is text, and nothing says which tokenizer {data.place} was written with")
    read_questions(config.choices)


def _length(setup: Setup) -> list[str]:
    """Sequences longer than the model was made for, which computed positions take and learned ones do not."""
    length, spec = setup.recipe.sequence_length, setup.spec
    if length <= spec.max_sequence_length:
        return []
    how = {"none": "it has no positions"}.get(spec.position.kind, f"its {spec.position.kind} positions go on")
    return [f"sequences of {length:,} tokens are longer than {spec.name}'s {spec.max_sequence_length:,}: {how}"]


def _spread(setup: Setup) -> list[str]:
    if setup.ranks.is_alone:
        is_asked = setup.config.strategy != Strategy()
        return ["one process shards and splits nothing: what the strategy says has no effect"] if is_asked else []
    strategy, told = setup.strategy, []
    if strategy != setup.config.strategy:
        told.append(f"each of the {strategy.data_parallel} ranks is a replica: no other strategy was asked for")
    if setup.config.sample.length and not setup.is_writing:
        told.append("no sample is written: sequence parallelism takes sequences of equally many tokens a rank only")
    return told


def _own(device: torch.device, ranks: Ranks) -> torch.device:
    """The device of this rank, which on a host with several GPUs is one of them."""
    return torch.device("cuda", ranks.local_rank) if device.type == "cuda" and not ranks.is_alone else device


def _check_data(spec: ModelSpec, recipe: Recipe, data: RunData) -> None:
    if data.vocab_size > spec.vocab_size:
        raise SetupError(
            f"the data in {data.place} has a vocabulary of {data.vocab_size:,}, model {spec.name} only "
            f"{spec.vocab_size:,}: ids beyond it have no embedding; set model.vocab_size to at least {data.vocab_size}"
        )
    for part, name in ((data.train, "training"), (data.validation, "validation")):
        if part.num_tokens <= recipe.sequence_length:
            raise SetupError(
                f"the {name} data in {data.place} has {part.num_tokens:,} tokens, too few for one sequence of "
                f"{recipe.sequence_length:,} and its last target; shorten recipe.sequence_length or prepare more text"
            )


def _decide(config: RunConfig, spec: ModelSpec, device: torch.device) -> tuple[Recipe, Sequence[str]]:
    """The recipe with length, precision and kernel decided, and why."""
    recipe, reasons = config.recipe, []
    if config.num_steps:
        recipe = replace(recipe, num_tokens=config.num_steps * recipe.tokens_per_step)
    is_open = config.attention == "auto"
    if config.attention == "math" or config.attention == "fused":  # noqa: PLR1714  # what a type checker can follow
        recipe = replace(recipe, attention=config.attention)
    asked = recipe.precision if config.precision == "recipe" else config.precision
    precision = choose_precision(asked, spec, recipe, device, with_kernel=is_open)
    recipe = replace(recipe, precision=precision.precision)
    if config.precision == "auto" or precision.precision == "fp8":
        reasons.append(precision.reason)
    if is_open:
        kernel = precision.kernel or choose_kernel(spec, recipe, device)
        recipe = replace(recipe, attention=kernel.kernel)
        reasons.append(kernel.reason)
    return recipe, reasons


def _epochs(setup: Setup) -> list[str]:
    if setup.mixture:
        recipe = setup.recipe
        num_samples = recipe.num_steps * recipe.batch_size
        return mixture_words(setup.data, setup.config.data_weight, setup.mixture, num_samples, recipe.sequence_length)
    if setup.epochs <= 1:
        return []
    tokens = f"{setup.data.train.num_tokens:,}"
    return [f"the run passes {setup.epochs:.2f} times over the {tokens} training tokens, in another order each time"]
