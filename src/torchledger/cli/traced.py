"""How `count --trace` answers for any model or step: figures, tables, what-ifs, the largest that fits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, TypeVar

import click

from torchledger import ledger as books
from torchledger.cli.failure import Failed
from torchledger.cli.output import is_quiet, note, show, show_json
from torchledger.cli.own import of_the_user, users_error
from torchledger.cli.progress import Progress
from torchledger.cli.step import write_ledger
from torchledger.ledger import Convention, Ledger
from torchledger.machine import Chip
from torchledger.machine import get as get_chip
from torchledger.tracer import Trace, trace_step
from torchledger.tracer.building import Built
from torchledger.tracer.largest import max_batch, max_sequence
from torchledger.tracer.plain_step import StepOptions
from torchledger.tracer.whatif import Change, Outcome, traced_with
from torchledger.units import format_bytes, format_count, format_flops, group_digits
from torchledger.view.memory import live_table, memory_bars
from torchledger.view.screen import Block, Facts, Lines, assumed
from torchledger.view.table import ledger_table
from torchledger.view.trace import coverage_lines, purpose_table, roofline_table, what_if_table

T = TypeVar("T")


def answer_traced(name: str, made: Built, options: Mapping[str, Any], change: Change | None = None) -> None:
    """Show what the user asked of a model or step that was built on no memory.

    Args:
        name: what it is called.
        made: the model with its batch, or the step.
        options: of `count`.
        change: another batch, length or recomputation that the options ask for.

    Raises:
        click.UsageError: an option that a step, or a model without a batch, cannot answer.
        Failed: the user's own code raises; or `--strict` and an operation has no rule.
    """
    change = change or Change()
    _refuse_beside(options)
    plain = _step_options(made, options)
    if made.step is not None:
        _refuse_for_steps(options, change)
    elif made.batch is None:
        raise click.UsageError(f"{name} makes a model and no batch: return (model, batch)")
    if options["max_batch"] is not None or options["max_sequence"] is not None:
        _answer_largest(name, made, plain, change, options)
    elif options["what_if"]:
        _answer_what_if(name, made, plain, change, options)
    else:
        trace = guarded(name, lambda: _trace(made, plain, change))
        if len(trace.calls) == trace.first_call:
            raise click.UsageError(f"{name} makes a step that runs nothing: return (model, batch), or the step itself")
        _answer_trace(name, trace, plain, options)


def guarded(name: str, run: Callable[[], T]) -> T:
    """Run something that calls the user's code; what that raises becomes a message.

    Raises:
        Failed: the user's code raised.
    """
    try:
        with of_the_user():
            return run()
    except click.ClickException:
        raise
    except (Exception, SystemExit) as error:
        if type(error).__module__.partition(".")[0] == "torchledger" or isinstance(error, ModuleNotFoundError):
            raise
        raise users_error(name, error) from error


def parsed_change(text: str, fixed: Change) -> Change:
    """A what-if as the user writes it: `checkpoint=full,precision=bf16`, on top of what is fixed.

    Raises:
        click.UsageError: no `name=value`.
        TraceError: a name that is none.
    """
    values: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals:
            raise click.UsageError(f"--what-if {text!r}: write name=value, for instance checkpoint=full")
        values[key.strip().replace("-", "_")] = _value(value.strip())
    if isinstance(values.get("checkpoint"), str) and "." in values["checkpoint"]:
        values["checkpoint"] = tuple(values["checkpoint"].split("+"))
    Change.of(values)
    return replace(fixed, **values)


def require_complete(ledger: Ledger, *, strict: bool) -> None:
    """Under `--strict` a ledger with an operation that has no rule is a failure.

    Raises:
        Failed: it has one; the message names all.
    """
    if strict and not ledger.is_complete:
        missing = books.unknown_operations(ledger)
        names = ", ".join(
            f"{each.op} ({each.times} times"
            + (f", at most {format_flops(each.at_most_flops)})" if each.at_most_flops is not None else ")")
            for each in missing
        )
        raise Failed(f"incomplete: no rule for {names}")


# ------------------------------------------------------------------------------------------------------------ answers


def _answer_trace(name: str, trace: Trace, plain: StepOptions, options: Mapping[str, Any]) -> None:
    chip = _chip(options)
    ledger = trace.ledger.folded().under(Convention(options["operations"], options["count_attention"]))
    if options["output"] is not None:
        write_ledger(ledger, options["output"])
        note(f"wrote {options['output']}")
    if options["as_json"]:
        show_json(
            "count",
            {"model": name, **_question(plain, options)},
            _figures(trace, ledger, plain, chip),
            trace.assumptions,
        )
    elif options["by"] is not None:
        title = f"{name} by {options['by'].replace('_', ' ')}"
        show((ledger_table(ledger, options["by"], depth=options["depth"], title=title), *assumed(ledger.assumptions)))
    else:
        show(_screen(name, trace, ledger, plain, chip=chip, depth=options["depth"]))
    require_complete(ledger, strict=options["strict"])


def _answer_what_if(name: str, made: Built, plain: StepOptions, fixed: Change, options: Mapping[str, Any]) -> None:
    changes = [("as it is", fixed), *((text, parsed_change(text, fixed)) for text in options["what_if"])]
    progress = Progress(quiet=is_quiet() or options["as_json"])
    outcomes = []
    for number, (text, change) in enumerate(changes):
        progress(number, len(changes), "tracing what-ifs")
        trace = guarded(name, lambda change=change: _trace(made, plain, change))  # type: ignore[misc]  # bound at once
        outcomes.append(Outcome.of(text, trace))
    progress.close()
    rows = [asdict(outcome) for outcome in outcomes]
    if options["as_json"]:
        show_json("count", {"model": name, **_question(plain, options)}, {"what_if": rows}, outcomes[0].assumptions)
    else:
        lines = dict.fromkeys(line for outcome in outcomes for line in outcome.assumptions)
        show((what_if_table(rows), *assumed(lines)))


def _answer_largest(name: str, made: Built, plain: StepOptions, fixed: Change, options: Mapping[str, Any]) -> None:
    is_batch = options["max_batch"] is not None
    limit = options["max_batch"] if is_batch else options["max_sequence"]
    search, what = (max_batch, "rows") if is_batch else (max_sequence, "tokens a row")
    assert made.model is not None, "a step was refused"
    model, given = made.model, {field: getattr(plain, field) for field in StepOptions.__slots__}
    tell = _teller(what, limit) if not options["as_json"] and sys.stderr.isatty() else None
    found = guarded(name, lambda: search(model, limit, made.batch, change=fixed, on_tried=tell, **given))
    if options["as_json"]:
        answer = {"size": found.size, "need_bytes": found.need_bytes, "num_traces": found.num_traces}
        question = {"model": name, **_question(plain, options), "limit_bytes": limit}
        show_json("count", question, {("max_batch" if is_batch else "max_sequence"): answer})
        return
    capped = " (the search ends there)" if found.is_capped else ""
    fits = f"{name}: {group_digits(found.size)} {what} fit into {format_bytes(limit)}{capped}"
    what_counts = "reserved by the caching allocator" if plain.target_name == "cuda" else "of tensors"
    facts = (
        ("takes", f"{format_bytes(found.need_bytes)} ({group_digits(found.need_bytes)} B {what_counts})"),
        ("found with", f"{found.num_traces} traces"),
    )
    show((Lines((fits,), mark="headline"), Facts(facts)))


def _teller(what: str, limit: int) -> Callable[[int, int], None]:
    """A line on stderr for every size that was traced: the search takes a while and its end is not known before."""

    def tell(size: int, need_bytes: int) -> None:
        verdict = "fits" if need_bytes <= limit else "does not fit"
        note(f"tried {group_digits(size)} {what}: {format_bytes(need_bytes)}, {verdict}")

    return tell


# ------------------------------------------------------------------------------------------------------------- pieces


def _trace(made: Built, plain: StepOptions, change: Change) -> Trace:
    if made.step is not None:
        return trace_step(made.step, steps=plain.steps, target=plain.target, chip=plain.chip)
    assert made.model is not None, "one of the two was made"
    return traced_with(made.model, made.batch, change, plain)


def _screen(
    name: str, trace: Trace, ledger: Ledger, plain: StepOptions, *, chip: Chip | None, depth: int
) -> tuple[Block, ...]:
    peak = trace.peak()
    facts = [
        ("parameters", group_digits(trace.num_parameters)),
        ("target", plain.target_name + (f", {chip.name}" if chip else "")),
        ("recipe", _recipe(plain)),
        ("intensity", "unknown" if trace.intensity is None else f"{trace.intensity:.3g} FLOPs a byte"),
    ]
    if plain.target_name == "cuda":
        reserved = trace.reserve().peak.reserved_bytes
        facts.append(("reserved", f"{format_bytes(reserved)} by the caching allocator for these tensors"))
    flops = trace.model_flops
    told = "an unknown number of FLOPs" if flops is None else format_flops(flops)
    return (
        Lines((f"{name}: {format_count(trace.num_parameters)} parameters, {told} a step",), mark="headline"),
        Facts(tuple(facts)),
        purpose_table(ledger),
        ledger_table(ledger, "module", depth=depth, title="by module"),
        *((roofline_table(ledger, chip),) if chip is not None else ()),
        memory_bars(peak.by_part(), title="peak of the tensors"),
        live_table(peak, limit=12),
        coverage_lines(trace.coverage),
        *assumed(trace.assumptions),
    )


def _figures(trace: Trace, ledger: Ledger, plain: StepOptions, chip: Chip | None) -> dict[str, Any]:
    peak = trace.peak()
    coverage = trace.coverage
    return {
        "num_parameters": trace.num_parameters,
        "total_flops": ledger.flops,
        "model_flops": trace.model_flops,
        "executed_flops": trace.executed_flops,
        "exact_flops": trace.exact_flops,
        "executed_flops_by_purpose": trace.split(),
        "flops_by_number_format": trace.by_number_format(),
        "flops_by_phase": {phase: group.flops for phase, group in ledger.by("phase").items()},
        "peak_bytes": peak.peak_bytes,
        "parts_bytes": peak.by_part(),
        "kept_bytes": trace.kept_bytes,
        "reserved_bytes": trace.reserve().peak.reserved_bytes if plain.target_name == "cuda" else None,
        "intensity": trace.intensity,
        "bound_s": None if chip is None else dict(trace.bound_on(chip)),
        "is_complete": ledger.is_complete,
        "coverage": {"share": coverage.share, **asdict(coverage)},
        "how": "by looking at the real step",
        "ledger": books.to_dict(ledger),
    }


def _step_options(made: Built, options: Mapping[str, Any]) -> StepOptions:
    given = dict(made.options)
    if options["precision"] is not None:
        given["precision"] = options["precision"]
    chip = options["chip"]
    return StepOptions(**given, target=options["target"] or "cpu", chip=chip)


def _refuse_beside(options: Mapping[str, Any]) -> None:
    """A search and what-ifs are answers of their own: neither goes with the other, nor with what shapes the ledger."""
    searches = [name for name in ("max_batch", "max_sequence") if options[name] is not None]
    asked = [*searches, *(["what_if"] if options["what_if"] else [])]
    if not asked:
        return
    context = click.get_current_context()
    for name in (*asked[1:], "by", "depth", "strict", "output", "operations", "count_attention"):
        if name in asked[1:] or context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{_written(name)} does not go with {_written(asked[0])}: ask one after the other")


def _written(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _refuse_for_steps(options: Mapping[str, Any], change: Change) -> None:
    for name in ("what_if", "max_batch", "max_sequence", "precision"):
        if options[name]:
            raise click.UsageError(
                f"--{name.replace('_', '-')} needs a model with its batch, and this is a step: return (model, batch)"
            )
    if change != Change():
        raise click.UsageError("a step has its own batch and recipe: leave out --batch, --sequence and --recompute")


def _question(plain: StepOptions, options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "target": plain.target_name,
        "chip": options["chip"],
        "precision": plain.precision,
        "gradient_clip": plain.gradient_clip,
        "accumulation_steps": plain.accumulation_steps,
        "what_if": list(options["what_if"]),
    }


def _recipe(plain: StepOptions) -> str:
    optimizer = plain.optimizer
    made = getattr(optimizer, "__name__", type(optimizer).__name__)
    parts = [plain.precision, "no optimizer (forward and backward alone)" if optimizer is None else made]
    parts += [f"clipped at {plain.gradient_clip:g}"] if plain.gradient_clip else []
    parts += [f"{plain.accumulation_steps} micro-batches"] if plain.accumulation_steps > 1 else []
    return ", ".join(parts)


def _chip(options: Mapping[str, Any]) -> Chip | None:
    return None if options["chip"] is None else get_chip(options["chip"])


def _value(text: str) -> Any:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    try:
        return int(text.replace("_", ""))
    except ValueError:
        return text
