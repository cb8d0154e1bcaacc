"""The options of `plan` that speak of a layout, each with the field of the question that it sets.

They are read as text and understood together (cli/plan_asked.py), so that all mistakes are told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import click

from torchledger.cli.named_path import NamedPath
from torchledger.spec.recipe import Recompute
from torchledger.spec.strategy import ContextKind, Schedule

Function = TypeVar("Function", bound=Callable[..., Any])

#: How the text of an option becomes a value.
Kind = Literal["count", "text", "flag"]


@dataclass(frozen=True, slots=True)
class Field:
    """One option that sets one field.

    Attributes:
        flag: as it is typed.
        place: dotted path of the field in the question.
        kind: how its text is read.
        metavar: what stands for the value in the help.
        help: what it says.
    """

    flag: str
    place: str
    kind: Kind
    metavar: str
    help: str

    @property
    def name(self) -> str:
        """Its name among the options of the command."""
        return self.flag.removeprefix("--").replace("-", "_")


def _words(literal: Any) -> str:
    return "|".join(get_args(literal))


#: Of the strategy: one of them given is a layout to plan; none of them lets `plan` search.
STRATEGY_FIELDS = (
    Field("--tp", "strategy.tensor_parallel", "count", "N", "Tensor parallel ranks."),
    Field("--pp", "strategy.pipeline_parallel", "count", "N", "Pipeline stages."),
    Field("--dp", "strategy.data_parallel", "count", "N", "Data parallel ranks (default: what the others leave)."),
    Field("--cp", "strategy.context_parallel", "count", "N", "Context parallel ranks."),
    Field("--ep", "strategy.expert_parallel", "count", "N", "Expert parallel ranks, out of data · context (· tensor)."),
    Field("--vp", "strategy.virtual_stages", "count", "N", "Chunks of layers of one pipeline rank (interleaved)."),
    Field("--schedule", "strategy.schedule", "text", _words(Schedule), "Order of the micro-batches."),
    Field("--zero", "strategy.shard_level", "count", "0-3", "ZeRO level; 3 is FSDP's FULL_SHARD."),
    Field("--shard-group", "strategy.shard_group", "count", "N", "Ranks that share one sharded copy (HSDP)."),
    Field("--sequence-parallel", "strategy.sequence_parallel", "flag", "", "Norms split tokens over tensor ranks."),
    Field("--context-kind", "strategy.context_kind", "text", _words(ContextKind), "How keys reach all queries."),
    Field("--micro-batch", "strategy.micro_batch_size", "count", "N", "Sequences a replica runs at once."),
)

#: Of everything else that a layout is planned for.
OTHER_FIELDS = (
    Field("--stack", "strategy.stack", "text", "NAME", "Training stack whose rules hold: megatron, fsdp2, torchtitan."),
    Field("--batch", "recipe.batch_size", "count", "N", "Sequences in a step, over all ranks."),
    Field("--sequence", "recipe.sequence_length", "count", "N", "Tokens in a sequence."),
    Field("--recompute", "recipe.recompute", "text", _words(Recompute), "What the backward pass runs again."),
    Field("--island", "cluster.island", "count", "N", "Chips that the fast link joins (default: the chip's)."),
    Field("--network", "cluster.network", "text", "RATE", "Network of one chip, one direction: 400Gb/s."),
)

FIELDS = (*STRATEGY_FIELDS, *OTHER_FIELDS)

#: Stacks that a layout can be launched with: `planner.launch.TARGETS`, without loading it.
LAUNCHERS = ("torchtitan", "megatron", "fsdp2", "deepspeed", "torchledger")

_FILE = NamedPath(dir_okay=False, path_type=Path)
_READ = NamedPath(exists=True, dir_okay=False, path_type=Path)

_MORE = (
    click.option("--config", "config_file", type=_READ, help="TOML with [model] [recipe] [strategy] [cluster]."),
    click.option(
        "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any field of a layout's question (repeatable)."
    ),
    click.option("--search", is_flag=True, help="Search layouts; what is given of the strategy stays as it is."),
    click.option("--sizes", metavar="N,N,...", help="Numbers of chips to search: the front of days against money."),
    click.option("--search-precision", metavar="NAME,NAME,...", help="Precisions to search besides: bf16,fp8."),
    click.option(
        "--search-offload",
        metavar="NAME,NAME,...",
        help="What to keep in host memory: none,optimizer,activations,both.",
    ),
    click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Layouts that a search lists."),
    click.option("--constants", type=_READ, help="Constants of `torchledger calibrate` for this cluster."),
    click.option("--timeline", type=_FILE, help="Write the step's time line for ui.perfetto.dev."),
    click.option(
        "--launch",
        type=click.Choice(LAUNCHERS),
        help="Print the flags that launch the layout.",
    ),
    click.option("--report", type=_FILE, help="Write the plan as one HTML file."),
)
#: Names of the options that make no sense without a model.
LAYOUT_NAMES = (
    *(field.name for field in FIELDS),
    *(
        "config_file",
        "sets",
        "search",
        "sizes",
        "search_precision",
        "search_offload",
        "constants",
        "timeline",
        "launch",
        "report",
    ),
)


#: Options that are not typed as they are named here.
_OTHER_FLAGS = {
    "cluster": "--on",
    "num_chips": "--chips",
    "catalog_files": "--catalog",
    "config_file": "--config",
    "sets": "--set",
}


def layout_options(function: Function) -> Function:
    """Add the options of a layout to a command."""
    for option in reversed(_MORE):
        function = option(function)
    for field in reversed(FIELDS):
        if field.kind == "flag":
            option = click.option(f"{field.flag}/--no-{field.name.replace('_', '-')}", default=None, help=field.help)
        else:
            option = click.option(field.flag, metavar=field.metavar, help=field.help)
        function = option(function)
    return function


def given_layout_options(options: Mapping[str, Any]) -> list[str]:
    """The options of a layout that were given, as typed."""
    return [flag_of(name) for name in LAYOUT_NAMES if options.get(name) not in (None, False, ())]


def flag_of(name: str) -> str:
    """An option as it is typed.

    >>> flag_of("num_chips"), flag_of("tokens_per_chip")
    ('--chips', '--tokens-per-chip')
    """
    return _OTHER_FLAGS.get(name, f"--{name.replace('_', '-')}")


def refuse_unused(options: Mapping[str, Any], used: Collection[str], why: str) -> None:
    """Options that were typed and that this kind of question passes over are refused.

    Args:
        options: of the command.
        used: names of those that it reads.
        why: what is said of the others: `--mfu and --price` and then this.

    Raises:
        click.UsageError: there are some.
    """
    if unused := [flag_of(name) for name in typed_options(options) if name not in used]:
        raise click.UsageError(f"{', '.join(unused)} {'says' if len(unused) == 1 else 'say'} nothing {why}")


def typed_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that somebody typed: the napkin's defaults are not a layout's."""
    context = click.get_current_context()
    typed = {click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.ENVIRONMENT}
    return {name: value for name, value in options.items() if context.get_parameter_source(name) in typed}
