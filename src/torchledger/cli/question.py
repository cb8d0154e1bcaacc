"""What is asked of `plan`: which kind of question its options ask, and the napkin's question itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import click

from torchledger import planner, spec
from torchledger.cli.cluster import read_on
from torchledger.cli.plan_options import flag_of
from torchledger.cli.quantity import OPEN
from torchledger.cli.terms import Terms, read_terms
from torchledger.machine import Cluster
from torchledger.planner.budget import Law, law
from torchledger.spec import ModelSpec, Recipe
from torchledger.spec.check_recipe import recipe_mistakes
from torchledger.units import parse_count

#: Other names of quantities that people write.
OTHER_NAMES = {"chips": "num_chips", "gpus": "num_chips", "parameters": "params", "time": "days"}

#: Sequences of a step and tokens of one: more than any run has, and few enough for products of them to be floats.
_MOST = 10**15

#: What a quantity of the napkin may be: products of them are floats still.
_LARGEST = 1e60

Kind = Literal["audit", "layout", "optimum", "napkin"]


def kind_of_question(model: str | None, options: Mapping[str, Any]) -> Kind:
    """Which planner answers.

    A model asks for a layout, unless something only a napkin has is said: an MFU, a quantity to solve for, or
    `--napkin`. Compute-optimal training asks for no chips.
    """
    if options["audit_mfu"]:
        return "audit"
    on_napkin = bool(_words_of_a_napkin(options))
    if options.get("config_file") is not None or (model is not None and not on_napkin):
        return "layout"
    if options["compute_optimal"] and not options["cluster"]:
        return "optimum"
    return "napkin"


def _words_of_a_napkin(options: Mapping[str, Any]) -> tuple[str, ...]:
    """What was said that only a napkin has, as it was typed."""
    asked = (name for name in (*planner.QUANTITIES, "money") if options[name] == OPEN)
    return (
        *(("--napkin",) if options["napkin"] else ()),
        *(("--compute-optimal",) if options["compute_optimal"] else ()),
        *((f"--solve {options['solve']}",) if options["solve"] is not None else ()),
        *(f"{flag_of(name)} '{OPEN}'" for name in asked),
        *(("--mfu",) if options["mfu"] not in {None, OPEN} else ()),
    )


def what_makes_it(kind: Kind, options: Mapping[str, Any]) -> str:
    """The options that make a question about a MODEL one of this kind and no layout, as they were typed."""
    return "--audit-mfu" if kind == "audit" else " and ".join(_words_of_a_napkin(options))


def read_sizes(model: ModelSpec, options: Mapping[str, Any]) -> tuple[int, int | None]:
    """Tokens of a sequence (the model's own where none are given) and sequences of a step (nothing likewise).

    Raises:
        click.UsageError: there is less than one, more than any run has, or more tokens than the model has positions.
        UnitError: one is no number.
    """
    length, batch = (None if options[name] is None else parse_count(options[name]) for name in ("sequence", "batch"))
    if length is None:
        length = spec.default_sequence_length(model)
    flags = {"sequence_length": "--sequence", "batch_size": "--batch"}
    recipe = Recipe(sequence_length=length, batch_size=1 if batch is None else batch)
    most = max(recipe.sequence_length, recipe.batch_size)
    if most > _MOST:
        raise click.UsageError(f"--sequence and --batch are at most {_MOST:.0e}, not {most:.3g}")
    wrong = [f"{flags[place]}: {text}" for place, text in recipe_mistakes(recipe, model) if place in flags]
    if wrong:
        raise click.UsageError("; ".join(wrong))
    return length, batch


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the napkin.

    Attributes:
        given: the known quantities of `planner.QUANTITIES`.
        solved: the one that is asked for; nothing where it follows from what is left out.
        cluster: the chips, their number as `--on` says it.
        precision, optimizer, gradients: of the training state; gradients nothing is the precision's own format.
        terms: price, power, carbon, losses.
        money: the whole budget, in `currency`; `None` where not given.
        currency: of money and price.
        peak_flops_per_s: another peak than the catalog's; `None` takes the catalog's.
        law: of compute-optimal training, where that is asked for.
        model: a model in place of a number of parameters.
    """

    given: Mapping[str, float]
    solved: str | None
    cluster: Cluster
    precision: str
    optimizer: str
    gradients: str | None
    terms: Terms
    money: float | None
    currency: str
    peak_flops_per_s: float | None
    law: Law | None = None
    model: ModelSpec | None = None

    @property
    def asks_memory(self) -> bool:
        """Whether memory alone answers: the largest model, or the fewest chips, with nothing said about time."""
        timed = {"tokens", "days"} & self.given.keys() or self.money is not None or self.law is not None
        return not timed and (self.solved == "params" or (self.solved == "num_chips" and "params" in self.given))

    @property
    def number_format(self) -> str:
        """What the matmuls run in."""
        return self.precision.partition("-")[0]

    @property
    def state(self) -> planner.StateBytes:
        """Bytes per parameter."""
        return planner.state_bytes(self.precision, self.optimizer, self.gradients)


def read_question(
    options: Mapping[str, Any], model: ModelSpec | None = None, num_params: int | None = None
) -> Question:
    """The question, with what is asked for taken out of what is given.

    Args:
        options: of the command.
        model: a model that stands in place of `--params`, with `num_params` parameters.
        num_params: of the model.

    Raises:
        click.UsageError: no chips, two quantities asked for, one both given and asked for, or one that is zero.
        MachineError: `--on` names no chips, or another number of them than `--chips`.
    """
    if not options["cluster"]:
        raise click.UsageError("which chips? Give --on, for example --on h100x1024 (`torchledger machines` lists them)")
    _refuse_sizes(options)
    num_chips = None if options["num_chips"] == OPEN else options["num_chips"]
    cluster = read_on(options["cluster"], num_chips, options["catalog_files"])
    values = {name: options[name] for name in planner.QUANTITIES if options[name] is not None}
    if num_params is not None and options["params"] not in {None, OPEN}:
        raise click.UsageError("MODEL and --params both say how many parameters; leave one of the two out")
    money = None if options["money"] == OPEN else options["money"]
    asked = {name for name, value in values.items() if value == OPEN}
    if options["money"] == OPEN:
        asked.add("money")
    if options["solve"]:
        asked.add(OTHER_NAMES.get(options["solve"], options["solve"]))
    if len(asked) > 1:
        raise click.UsageError(
            f"one quantity is asked for at a time, not {len(asked)}: {', '.join(sorted(asked))};"
            " give a number for the others"
        )
    solved = next(iter(asked), None)
    given = {name: value for name, value in values.items() if value != OPEN}
    if num_params is not None and solved != "params":
        given["params"] = num_params
    if solved in given or (solved == "money" and money is not None):
        raise click.UsageError(f"{solved} is both given and asked for; leave one of the two out")
    if "num_chips" not in given and solved != "num_chips" and not _leaves_chips_open(cluster, given, solved, money):
        given["num_chips"] = cluster.num_chips
    terms = read_terms(options, cluster.chip, cluster.num_chips)
    if solved == "money" and terms.price is None:
        raise click.UsageError("money is asked for and no price is known: give --price '$2.80' or --prices FILE")
    return Question(
        given=given,
        solved=solved,
        cluster=cluster,
        precision=options["precision"],
        optimizer=options["optimizer"],
        gradients=options["gradients"],
        terms=terms,
        money=money[0] if money else None,
        currency=_currency(terms, money),
        peak_flops_per_s=options["peak"],
        law=law(options["law"]) if options["compute_optimal"] else None,
        model=model,
    )


def _refuse_sizes(options: Mapping[str, Any]) -> None:
    """Quantities that are zero, or too large to compute with.

    Raises:
        click.UsageError: there is one.
    """
    for name in planner.QUANTITIES:
        value = options[name]
        if value == 0:
            raise click.UsageError(f"{flag_of(name)} is 0; it must be above zero: leave it out, or ask for it with '?'")
        if value not in {None, OPEN} and value > _LARGEST:
            raise click.UsageError(f"{flag_of(name)} is {value:.3g}; at most {_LARGEST:.0e} can be computed with")


def _leaves_chips_open(
    cluster: Cluster, given: Mapping[str, float], solved: str | None, money: tuple[float, str] | None
) -> bool:
    """A chip without a number, where the work and the time or the bill are known: how many is left open."""
    if cluster.num_chips != 1:
        return False
    return bool(money) or (solved is None and {"params", "tokens", "days"} <= given.keys())


def _currency(terms: Terms, money: tuple[float, str] | None) -> str:
    named = {amount for amount in (terms.price and terms.price.currency, money and money[1]) if amount}
    if len(named) > 1:
        raise click.UsageError(f"price and money are in two currencies: {' and '.join(sorted(named))}")
    return next(iter(named), "USD")


def as_asked(question: Question) -> dict[str, Any]:
    """The question for a JSON answer."""
    return {
        **question.given,
        "solved": question.solved,
        "model": None if question.model is None else question.model.name,
        "chip": question.cluster.chip.key,
        "precision": question.precision,
        "optimizer": question.optimizer,
        "gradients": question.gradients,
        "compute_optimal": None if question.law is None else question.law.name,
        **asdict(question.terms.run),
        "money": question.money,
        "currency": question.currency,
        "peak_flops_per_s": question.peak_flops_per_s,
    }
