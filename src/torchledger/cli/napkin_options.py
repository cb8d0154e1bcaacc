"""The options of `plan` that the napkin and the audit of a claim have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from torchledger import planner, units
from torchledger.cli.complete import chip_names
from torchledger.cli.named_path import NamedPath
from torchledger.cli.quantity import COUNT, DAYS, FLOPS_PER_S, MONEY, SHARE, Quantity
from torchledger.cli.question import OTHER_NAMES
from torchledger.planner.budget import laws
from torchledger.planner.printed import read_printed
from torchledger.planner.state import GRADIENTS

Function = TypeVar("Function", bound=Callable[..., Any])

_SOLVABLE = (*planner.QUANTITIES, "money", *OTHER_NAMES)
_FLOPS = Quantity("FLOPs", units.parse_flops)
_PRINTED = Quantity("figure", read_printed)

_NAPKIN = (
    click.option("--params", type=COUNT, help="Parameters N: 70B. `?` asks for it, here and below."),
    click.option("--tokens", type=COUNT, help="Training tokens D: 15T."),
    click.option("--days", type=DAYS, help="Wall-clock time: 30, or '3d 4h'."),
    click.option("--on", "cluster", metavar="CHIPxN", help="The chips: h100x1024, 8xA100.", shell_complete=chip_names),
    click.option("--chips", "num_chips", type=COUNT, help="Number of chips, where --on does not say it."),
    click.option(
        "--catalog",
        "catalog_files",
        multiple=True,
        type=NamedPath(exists=True, dir_okay=False, path_type=Path),
        help="A TOML file with chips of your own (may be repeated).",
    ),
    click.option("--mfu", type=SHARE, help="Model FLOPs utilisation: 0.5 or 50%."),
    click.option("--money", type=MONEY, help="The whole budget: '$10M'. Needs a price."),
    click.option(
        "--solve",
        type=click.Choice(_SOLVABLE),
        metavar="QUANTITY",
        help="What is asked for, the same as `?` for it: params, tokens, days, chips, mfu or money.",
    ),
    click.option(
        "--precision",
        type=click.Choice(planner.PRECISIONS),
        default="bf16",
        show_default=True,
        help="Of the matmuls (before the dash) and of the training state.",
    ),
    click.option(
        "--optimizer",
        type=click.Choice(planner.OPTIMIZERS),
        default="adamw",
        show_default=True,
        help="Whose state is held.",
    ),
    click.option("--gradients", type=click.Choice(tuple(GRADIENTS)), help="Format that gradients are kept in."),
    click.option("--peak", type=FLOPS_PER_S, help="Another dense peak of a chip than the catalog's: '989.5 TFLOP/s'."),
    click.option("--napkin", is_flag=True, help="With MODEL: its own FLOPs a token, and no layout."),
    click.option("--flops", type=_FLOPS, help="A budget of FLOPs: 5.76e23. With --compute-optimal."),
    click.option("--compute-optimal", is_flag=True, help="Parameters and tokens as Chinchilla would have them."),
    click.option(
        "--law",
        type=click.Choice(tuple(each.name for each in laws())),
        default="20-tokens",
        show_default=True,
        help="Whose fit says what is compute-optimal.",
    ),
    click.option(
        "--activations",
        type=click.Choice(("none", "kept", "recomputed")),
        default="none",
        show_default=True,
        help="By memory: whether activations count too, MODEL's or a Transformer's of the usual shape.",
    ),
    click.option(
        "--tokens-per-chip", type=COUNT, default=8192, show_default=True, help="Tokens that a chip holds at once."
    ),
)

_AUDIT = (
    click.option(
        "--audit-mfu", is_flag=True, help="Which convention gives a printed MFU; MODEL and a speed are given."
    ),
    click.option("--tokens-per-s", metavar="FIGURE", help="As printed, of all chips: 238.3k; of one: 6159.4/chip."),
    click.option("--tflops", type=_PRINTED, help="TFLOP/s of one chip, as printed."),
    click.option("--step-time", type=_PRINTED, help="Seconds of a step, as printed; with --batch sequences in it."),
    click.option("--printed-mfu", type=_PRINTED, help="MFU, as printed: 66.07% or 0.6607."),
    click.option("--printed-hfu", type=_PRINTED, help="HFU, as printed."),
    click.option(
        "--log",
        type=NamedPath(exists=True, dir_okay=False, path_type=Path),
        help="A run's own metrics.jsonl for the speed.",
    ),
)
#: Names of the audit's options, which make no sense without it.
AUDIT_NAMES = ("tokens_per_s", "tflops", "step_time", "printed_mfu", "printed_hfu", "log")


def napkin_options(function: Function) -> Function:
    """Add the options of the napkin to a command."""
    for option in reversed(_NAPKIN):
        function = option(function)
    return function


def audit_options(function: Function) -> Function:
    """Add the options of an audit to a command."""
    for option in reversed(_AUDIT):
        function = option(function)
    return function
