"""The screen of `count`: parameters, FLOPs of a step by phase and by module, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchledger.formula import Activation, PerToken, num_active_parameters, num_embedding_parameters, num_parameters
from torchledger.ledger import HARDWARE_FLOPS, Ledger
from torchledger.spec import ModelSpec, Recipe
from torchledger.units import format_bytes, format_count, format_flops, format_number, group_digits
from torchledger.view.memory import memory_bars
from torchledger.view.screen import Block, Facts, Lines, Row, Table, assumed
from torchledger.view.table import ledger_table


def count_screen(
    model: ModelSpec, recipe: Recipe, ledger: Ledger, *, depth: int, memory: Mapping[str, int], how: str
) -> tuple[Block, ...]:
    """What one optimizer step of a model costs.

    Args:
        model: the model.
        recipe: how it is trained.
        ledger: the lines of one step.
        depth: levels of the module tree.
        memory: bytes by part; empty where it was not counted.
        how: how the lines were got, in words.
    """
    return (
        Lines((headline(model, recipe, ledger),), mark="headline"),
        Facts(count_facts(model, recipe, ledger, how)),
        ledger_table(ledger, "phase", title="by phase"),
        ledger_table(ledger, "module", depth=depth, title="by module"),
        *((memory_bars(memory, title="peak memory"),) if memory else ()),
        *assumed(ledger.assumptions),
    )


def headline(model: ModelSpec, recipe: Recipe, ledger: Ledger) -> str:
    """The answer in one sentence."""
    return (
        f"{model.name}: {format_count(num_parameters(model))} parameters,"
        f" {format_flops(ledger.flops)} for a step of {group_digits(recipe.tokens_per_step)} tokens"
    )


def count_facts(model: ModelSpec, recipe: Recipe, ledger: Ledger, how: str) -> tuple[tuple[str, str], ...]:
    """The figures of the step to the last digit, and what was asked."""
    total, active, tables = num_parameters(model), num_active_parameters(model), num_embedding_parameters(model)
    flops = ledger.flops
    facts = [
        ("parameters", f"{group_digits(total)} ({group_digits(tables)} in lookup tables)"),
        ("step", f"{recipe.batch_size} × {group_digits(recipe.sequence_length)} tokens"),
        ("recipe", recipe_text(recipe)),
        ("FLOPs", f"{group_digits(flops)} a step"),
    ]
    if active != total:
        facts.insert(1, ("active", f"{group_digits(active)} parameters for a token"))
    if flops is not None:
        per_token = flops / recipe.tokens_per_step
        times = format_number(per_token / active)
        n = "N" if active == total else "the active N"
        facts.append(("", f"{format_flops(per_token)} a token = {times} × {n} (the napkin takes 6 × N)"))
        run = ledger.under(HARDWARE_FLOPS).flops
        if run != flops:
            facts.append(("", f"{group_digits(run)} with attention as executed and recompute in (hardware FLOPs)"))
    facts.append(("counted", how))
    return tuple(facts)


def recipe_text(recipe: Recipe) -> str:
    """The recipe in one line."""
    optimizer = recipe.optimizer
    parts = [
        recipe.precision,
        f"{optimizer.kind} ({optimizer.implementation})",
        f"{recipe.attention} attention",
        f"recompute {recipe.recompute}",
    ]
    if recipe.accumulation_steps != 1:
        parts.append(f"{recipe.accumulation_steps} micro-batches")
    return ", ".join(parts)


def activation_table(kept: Sequence[Activation]) -> Table:
    """Every storage that the forward pass keeps for the backward pass, in order."""
    rows = [
        Row(
            (
                each.name,
                " × ".join(group_digits(size) for size in each.shape),
                each.number_format,
                group_digits(each.times),
                format_bytes(each.total_bytes),
                each.kept_by,
            )
        )
        for each in kept
    ]
    total = sum(each.total_bytes for each in kept)
    rows.append(Row(("total", "", "", "", f"{format_bytes(total)} ({group_digits(total)} B)", ""), mark="total"))
    columns = ("<what", "<shape", "<format", "times", "bytes", "<kept by")
    title = "activations kept for the backward pass, one micro-batch"
    return Table(columns, tuple(rows), title, optional=("kept by", "format"))


def convention_table(ways: Sequence[PerToken]) -> Table:
    """FLOPs per token by every formula in circulation, so that their spread is seen."""
    rows = tuple(Row((each.name, each.formula, format_flops(each.flops), each.source)) for each in ways)
    return Table(
        ("<who", "<formula", "FLOPs a token", "<source"), rows, "training FLOPs per token", optional=("source",)
    )
