"""What is asked of the layout planner: model, recipe, strategy and cluster, from a file, options and `--set`.

From weak to strong: what is assumed, the file of `--config`, options, `--set`. Whatever is wrong is told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchledger import config, machine, spec
from torchledger.cli.asked import recipe_of
from torchledger.cli.cluster import read_on
from torchledger.cli.plan_fill import fill
from torchledger.cli.plan_options import FIELDS, Kind
from torchledger.config import ConfigError
from torchledger.machine import Cluster
from torchledger.planner.errors import PlanError
from torchledger.planner.rules import refusals
from torchledger.planner.stack import stack
from torchledger.spec import ModelSpec, Recipe, SpecError, Strategy
from torchledger.spec.check import Mistake
from torchledger.spec.check_recipe import recipe_mistakes, strategy_mistakes
from torchledger.spec.file import meant_models
from torchledger.units import Count, parse_count

_READ: Mapping[Kind, Callable[[str], Any]] = {"count": parse_count, "text": str, "flag": bool}
#: Fields of a strategy that say nothing of its layout: with these alone it is searched for.
NO_LAYOUT = frozenset({"stack", "micro_batch_size", "overlap_data", "overlap_tensor", "prefetch", "vocab_parallel"})
#: Options that ask for a search even of a layout that is given.
_SEARCHING = ("search", "sizes", "search_precision", "search_offload")
#: Options of the napkin that a layout answers itself, or has other words for.
NAPKIN_ALONE = (
    *("params", "days", "money", "mfu", "solve", "peak", "gradients", "flops"),
    *("compute_optimal", "law", "activations", "tokens_per_chip"),
)
#: Tables of a question's file beside its model.
_ROOMS = ("recipe", "strategy", "cluster")
_NAPKIN_S = "says nothing of a layout; leave it out, or ask the napkin with MODEL and --napkin"
#: Words of the napkin's that a recipe has two fields for; 0.9 is the momentum of nearly all who use one.
_OPTIMIZERS: Mapping[str, dict[str, Any]] = {"sgd-momentum": {"kind": "sgd", "momentum": 0.9}}
#: Fields of a recipe that rules of a layout divide, and what stands for them where they make no sense: 1 is a divisor
#: of everything, 720,720 is divided by all small numbers.
_SIZES = ("batch_size", "sequence_length", "accumulation_steps")
_STAND_INS = (1, 720_720)
#: What leaves data parallel ranks over where these are not given.
_LEAVING = frozenset({"tensor_parallel", "pipeline_parallel", "context_parallel"})
_SHARED = {
    "recipe.num_tokens": "tokens",
    "recipe.precision": "precision",
    "cluster.on": "cluster",
    "cluster.chips": "num_chips",
}
_FLAGS = {
    **{each.place: each.flag for each in FIELDS},
    "cluster.on": "--on",
    "cluster.chips": "--chips",
    "recipe.num_tokens": "--tokens",
}


@dataclass(frozen=True, slots=True)
class ClusterTable:
    """The [cluster] table.

    Attributes:
        on: the chips, as `--on` takes them: `h100x1024`, a known cluster's name, or a file (`mine.toml`).
        chips: how many of a known cluster's or a file's chips; 0 is all.
        island: chips that the fast link joins; 0 is what is known of them.
        network: rate of one chip's network in one direction, `400Gb/s`; empty is what is known of it.
        pod: chips that the network joins at its full rate; 0 is what is known.
        oversubscription: how many times less than that a pod has towards other pods; 0 is what is known.
    """

    on: str = ""
    chips: Count = 0
    island: int = 0
    network: str = ""
    pod: int = 0
    oversubscription: float = 0.0


@dataclass(frozen=True, slots=True)
class PlanTable:
    """A file of `plan --config`.

    Attributes:
        model: a name, or the model itself as a table.
        preset: the published model that the [model] table changes.
        recipe: how it is trained.
        strategy: how it is spread; without this table a layout is searched for.
        cluster: on what.
    """

    model: ModelSpec | str = ""
    preset: str = ""
    recipe: Recipe = field(default_factory=Recipe)
    strategy: Strategy = field(default_factory=Strategy)
    cluster: ClusterTable = field(default_factory=ClusterTable)


@dataclass(frozen=True, slots=True)
class Layout:
    """What the layout planner is asked.

    Attributes:
        spec, recipe, strategy, cluster: the question, filled in.
        searches: whether the layout is searched for.
        fixed: names of the strategy's fields, and `recompute`, that the user gave; a search leaves them as they are.
        assumptions: what was filled in.
    """

    spec: ModelSpec
    recipe: Recipe
    strategy: Strategy
    cluster: Cluster
    searches: bool
    fixed: frozenset[str]
    assumptions: tuple[str, ...]


def read_layout(model: str | None, options: Mapping[str, Any]) -> Layout:
    """The question.

    Args:
        model: a preset, a file, or nothing where the file of `--config` has it.
        options: of the command; those that were not typed and have a default are left out.

    Raises:
        ConfigError: with every mistake in it.
    """
    mistakes = [(f"--{name.replace('_', '-')}", _NAPKIN_S) for name in NAPKIN_ALONE if options.get(name) is not None]
    table = _table(options, mistakes)
    file: Path | None = options.get("config_file")
    written = {} if file is None else config.read_file(file)[0].table
    found = _model(model, file, written, mistakes)
    if model is not None and found is not None:
        table["recipe"] = {**recipe_of(model), **table["recipe"]}
    # what is no table in the file is told: options would stand in its place without a word
    table = {room: values for room, values in table.items() if isinstance(written.get(room, {}), Mapping)}
    read = _typed(file, table, options.get("sets", ()), found, mistakes)
    given = _given(table, written, options.get("sets", ()))
    given |= {"recipe.precision"} if options.get("search_precision") else set()
    if isinstance(read, tuple):
        both = [(each.model if isinstance(each.model, ModelSpec) else found, each) for each in read]
        if found is None and read:
            both = _paired(_models(file, written), read)
        raise _told([*mistakes, *_however_meant(both, given, options)])
    cluster = _cluster(read.cluster, mistakes, options.get("catalog_files", ()))
    asked = read.model if isinstance(read.model, ModelSpec) else found
    senseless = _sense(asked, read.recipe, _judged(read.strategy))
    fixed, searches = _fixed(given), _searches(given, options)
    if senseless and asked is not None and cluster is not None and not searches:
        mistakes += _beside(senseless, asked, read, cluster, given)
    mistakes += senseless
    if asked is None or cluster is None or mistakes:
        _refuse(mistakes)
        raise AssertionError  # what is missing has been told
    filled = fill(read.recipe, read.strategy, cluster, given, searches=searches)
    if not searches:
        broken = refusals(asked, filled.recipe, filled.strategy, cluster)
        _refuse(("", each.text) for each in broken)
    fixed |= {"recompute"} if "recipe.recompute" in given else set()
    return Layout(asked, filled.recipe, filled.strategy, cluster, searches, fixed, filled.assumptions)


def _table(options: Mapping[str, Any], mistakes: list[Mistake]) -> dict[str, dict[str, Any]]:
    """The options as tables of a file."""
    table: dict[str, dict[str, Any]] = {"recipe": {}, "strategy": {}, "cluster": {}}
    values = {place: options.get(name) for place, name in _SHARED.items()}
    for each in FIELDS:
        text = options.get(each.name)
        if text is not None:
            try:
                values[each.place] = _READ[each.kind](text)
            except ValueError as error:
                mistakes.append((each.flag, str(error)))
    for place, value in values.items():
        if value == 0 and place in {"cluster.chips", "recipe.num_tokens"}:  # in a file, 0 is not given
            mistakes.append((place, "must be at least 1, is 0; leave it out where it is open"))
        elif value is not None:
            room, name = place.split(".")
            table[room][name] = value
    if options.get("optimizer") is not None:
        table["recipe"]["optimizer"] = _OPTIMIZERS.get(options["optimizer"], {"kind": options["optimizer"]})
    return table


def _model(
    name: str | None, file: Path | None, written: Mapping[str, Any], mistakes: list[Mistake]
) -> ModelSpec | None:
    """The model, from the command line or from the file; nothing where that is a mistake."""
    in_file = written.get("model", written.get("preset"))
    if name is not None and in_file is not None:
        mistakes.append(("model", f"is given twice: {name} and in {file}; leave one of the two out"))
        return None
    if name is None and in_file is None:
        mistakes.append(("model", "is missing; name a preset (`torchledger models`) or a model file"))
        return None
    source: str | Path | None = name if name is not None else in_file if isinstance(in_file, str) else file
    if "preset" in written:
        source = file
    assert source is not None
    try:
        return spec.load(source)
    except ConfigError as error:
        own = [each for each in error.mistakes if name is not None or each[0] not in _ROOMS]  # those are read here
        if name is not None or len(own) == len(error.mistakes) == 1:
            mistakes.append(("model", str(error)))
        else:
            mistakes += own
    except SpecError as error:
        mistakes.append(("model", str(error)))
    return None


def _typed(
    file: Path | None,
    table: Mapping[str, Any],
    sets: Iterable[str],
    model: ModelSpec | None,
    mistakes: list[Mistake],
) -> PlanTable | tuple[PlanTable, ...]:
    """The tables as values; where they cannot be read, what they may mean."""
    length = Recipe().sequence_length if model is None else spec.default_sequence_length(model)
    defaults = PlanTable(model or "", recipe=Recipe(sequence_length=length, precision="bf16"))
    given: dict[str, Any] = {"table": table, "sets": tuple(sets), "defaults": defaults}
    try:
        read: PlanTable = config.load(file, PlanTable, **given).value
    except ConfigError as error:
        is_told = any(place.startswith("model") for place, _ in mistakes)
        mistakes += [each for each in error.mistakes if not (is_told and each[0].startswith("model"))]
    else:
        return read
    try:
        return config.meant(file, PlanTable, **given)
    except ConfigError:  # the file itself cannot be read, which has been told
        return ()


def _models(file: Path | None, written: Mapping[str, Any]) -> tuple[ModelSpec, ...]:
    """What the file's model may mean where it cannot be read."""
    return (
        meant_models(file, spec.presets.get) if file is not None and isinstance(written.get("model"), Mapping) else ()
    )


def _paired(models: Sequence[ModelSpec], readings: Sequence[PlanTable]) -> list[tuple[ModelSpec | None, PlanTable]]:
    """Every model that may be meant, and all else that may be, each beside what makes most sense of the other."""
    if not models:
        return [(None, each) for each in readings]
    model = min(models, key=lambda each: len(spec.check.mistakes(each)))
    asked = min(readings, key=lambda each: len(_sense(None, each.recipe, _judged(each.strategy))))
    return [*((each, asked) for each in models), *((model, each) for each in readings)]


def _however_meant(
    readings: Sequence[tuple[ModelSpec | None, PlanTable]], given: frozenset[str], options: Mapping[str, Any]
) -> list[Mistake]:
    """What is wrong with a question whatever is meant by those of its values that cannot be read."""
    if not readings:
        return []

    def chips(asked: ClusterTable) -> list[Mistake]:
        told: list[Mistake] = []
        _cluster(asked, told, options.get("catalog_files", ()))
        return told

    asked = list(dict.fromkeys(one.cluster for _, one in readings))
    clusters, is_cluster_read = config.wrong_in_all(asked, chips), len(asked) == 1
    cluster = _cluster(asked[0], [], options.get("catalog_files", ()))
    searches = _searches(given, options)

    def sense(each: tuple[ModelSpec | None, PlanTable]) -> list[Mistake]:
        model, read = each
        return _sense(model, read.recipe, _judged(read.strategy))

    def rules(each: tuple[ModelSpec | None, PlanTable]) -> list[Mistake]:
        model, read = each
        if model is None or cluster is None:
            return []
        return _beside(sense(each), model, read, cluster, given)

    known = [each for each in readings if each[0] is not None]
    found = config.wrong_in_all(readings, sense)
    if is_cluster_read and not searches:
        sound = [each for each in known if {*sense(each)} <= {*found}]  # what stands in makes sense itself
        found += config.wrong_in_all(sound, rules)
    return [*clusters, *dict.fromkeys(found)]


def _fixed(given: frozenset[str]) -> frozenset[str]:
    """Fields of the strategy that were given."""
    return frozenset(place.removeprefix("strategy.") for place in given if place.startswith("strategy."))


def _searches(given: frozenset[str], options: Mapping[str, Any]) -> bool:
    return any(options.get(name) for name in _SEARCHING) or not _fixed(given) - NO_LAYOUT


def _given(table: Mapping[str, Mapping[str, Any]], written: Mapping[str, Any], sets: Iterable[str]) -> frozenset[str]:
    """Dotted places of everything that somebody said."""
    places = {text.partition("=")[0].strip() for text in sets}
    for tables in (table, written):
        for room, values in tables.items():
            if isinstance(values, Mapping):
                places |= {f"{room}.{name}" for name in values}
    return frozenset(places)


def _cluster(asked: ClusterTable, mistakes: list[Mistake], catalog_files: Sequence[Path]) -> Cluster | None:
    if not asked.on:
        mistakes.append(("cluster.on", "which chips? Say --on h100x1024 (`torchledger machines` lists the chips)"))
        return None
    try:
        cluster = read_on(asked.on, asked.chips or None, catalog_files)
    except (ValueError, OSError) as error:
        mistakes.append(("cluster.on", str(error)))
        return None
    try:
        return cluster.joined(
            network=asked.network or None,
            chips_per_island=asked.island or None,
            chips_per_pod=asked.pod or None,
            oversubscription=asked.oversubscription or None,
        )
    except machine.BadCluster as error:
        mistakes.append(("cluster", str(error)))
        return None


def _judged(strategy: Strategy) -> Strategy:
    """The strategy but for what expert ranks are taken from: a rule says that, with a remedy and beside the others."""
    return replace(strategy, expert_parallel=min(1, strategy.expert_parallel))


def _sense(model: ModelSpec | None, recipe: Recipe, strategy: Strategy) -> list[Mistake]:
    """What is wrong with the values, each on its own."""
    found = [] if model is None else [(f"model.{place}", text) for place, text in spec.check.mistakes(model)]
    found += [(f"recipe.{place}", text) for place, text in recipe_mistakes(recipe, model)]
    found += [(f"strategy.{place}", text) for place, text in strategy_mistakes(strategy)]
    try:
        stack(strategy.stack)
    except ConfigError as error:
        found += [("strategy.stack", f"{strategy.stack}: {place}: {text}") for place, text in error.mistakes]
    except (PlanError, OSError) as error:
        found.append(("strategy.stack", str(error)))
    return found


def _beside(
    senseless: Iterable[Mistake], model: ModelSpec, read: PlanTable, cluster: Cluster, given: frozenset[str]
) -> list[Mistake]:
    """Rules that the layout breaks whatever is meant by the values that make no sense; none where that is unknown."""
    wrong = {place.split(".")[0]: set[str]() for place, _ in senseless}
    for place, _ in senseless:
        room, name = place.split(".")[:2]
        wrong[room].add(name)
    if "model" in wrong:
        return []
    recipe = replace(read.recipe, **{name: getattr(Recipe(), name) for name in wrong.get("recipe", ())})
    strategy = replace(read.strategy, **{name: getattr(Strategy(), name) for name in wrong.get("strategy", ())})
    sizes = [name for name in _SIZES if name in wrong.get("recipe", ())]
    stood_in: list[dict[str, Any]] = [{name: size} for name in sizes for size in _STAND_INS]
    recipes = [replace(recipe, **each) for each in stood_in]

    unknown = set(wrong.get("strategy", ()))
    if unknown & _LEAVING and "strategy.data_parallel" not in given:
        unknown.add("data_parallel")

    def broken(recipe: Recipe) -> list[Mistake]:
        filled = fill(recipe, strategy, cluster, given, searches=False)
        found = refusals(model, filled.recipe, filled.strategy, cluster)
        return [("", each.text) for each in found if not each.fields & unknown]

    return config.wrong_in_all(recipes or [recipe], broken)


def _refuse(mistakes: Iterable[Mistake]) -> None:
    """Refuse mistakes, all in one message.

    Raises:
        ConfigError: there is one.
    """
    found = list(mistakes)
    if found:
        raise _told(found)


def _told(mistakes: Iterable[Mistake]) -> ConfigError:
    """The message with all mistakes, each by the flag that sets its field."""
    return ConfigError("plan", list(dict.fromkeys((_FLAGS.get(place, place), message) for place, message in mistakes)))
