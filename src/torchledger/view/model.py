"""Models on the screen: one row for each that is known, or everything about one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchledger.formula.parameters import Parameter, num_active_parameters, num_parameters
from torchledger.ledger import Amount
from torchledger.spec import ModelSpec
from torchledger.units import format_bytes, group_digits
from torchledger.view.screen import Block, Facts, Lines, Row, Table


def models_table(specs: Iterable[ModelSpec]) -> Table:
    """One row a model: its parameters to the last one, its sizes, and where they come from."""
    columns = ("<name", "parameters", "layers", "hidden", "heads", "context", "vocabulary", "<source")
    rows = (
        Row(
            (
                spec.name,
                group_digits(num_parameters(spec)),
                str(spec.num_layers),
                group_digits(spec.hidden_size),
                _heads(spec),
                group_digits(spec.max_sequence_length),
                group_digits(spec.vocab_size),
                spec.source,
            )
        )
        for spec in specs
    )
    return Table(columns, tuple(rows), "known models", optional=("source", "vocabulary", "heads"))


def model_screen(spec: ModelSpec, settings: Sequence[tuple[str, str]]) -> tuple[Block, ...]:
    """One model: its parameters, and its whole specification by dotted name."""
    total, active = num_parameters(spec), num_active_parameters(spec)
    moving = "" if total == active else f", {group_digits(active)} of them active for a token"
    return (
        Lines((f"{spec.name}: {group_digits(total)} parameters{moving}",), mark="headline"),
        Facts(tuple(settings)),
    )


def parameter_table(parameters: Sequence[Parameter], *, title: str = "parameters") -> Table:
    """Every parameter tensor: shape, format, bytes, whether it is trained, and what it is tied to."""
    columns = ("<name", "<shape", "times", "<format", "parameters", "bytes", "<trained", "<tied to")
    rows = [_parameter_row(each) for each in parameters]
    total = sum(each.total for each in parameters)
    num_bytes = sum(_bytes(each) for each in parameters)
    rows.append(Row(("total", "", "", "", group_digits(total), format_bytes(num_bytes), "", ""), mark="total"))
    return Table(columns, tuple(rows), title, optional=("trained", "format", "times"))


def _parameter_row(each: Parameter) -> Row:
    return Row(
        (
            each.name,
            " × ".join(group_digits(size) for size in each.shape),
            group_digits(each.times),
            each.number_format,
            group_digits(each.total),
            format_bytes(_bytes(each)),
            "yes" if each.trainable else "no",
            each.tied_to or "",
        )
    )


def _bytes(each: Parameter) -> Amount:
    """Bytes of all tensors of this name; a tied one has none of its own."""
    return 0 if each.tied_to else each.num_bytes * each.times


def _heads(spec: ModelSpec) -> str:
    heads, key_value = spec.attention.num_heads, spec.num_key_value_heads
    return str(heads) if heads == key_value else f"{heads} ({key_value} kv)"
