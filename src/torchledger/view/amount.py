"""Values shown by what their name says they are: `peak_bytes` in GiB, `step_s` as a duration, `mfu` as a share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torchledger.units import (
    format_bytes,
    format_duration,
    format_flops,
    format_flops_per_s,
    format_number,
    format_percent,
    format_rate,
    group_digits,
)

# The longest ending that fits decides.
_ENDINGS: tuple[tuple[str, Callable[[Any], str]], ...] = (
    ("flops_per_s", format_flops_per_s),
    ("bytes_per_s", format_rate),
    ("tokens_per_s", lambda x: f"{format_number(x)} tokens/s"),
    ("_per_s", lambda x: f"{format_number(x)}/s"),
    ("flops", format_flops),
    ("bytes", format_bytes),
    ("mfu", format_percent),
    ("hfu", format_percent),
    ("_s", format_duration),
)


def show_named(name: str, value: Any) -> str:
    """A value as text for people, by the unit that its name carries.

    >>> show_named("peak_bytes", 2415919104), show_named("step_s", 1.83), show_named("num_parameters", 8030261248)
    ('2.25 GiB', '1.83 s', '8,030,261,248')
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
        return str(value)
    for ending, show in _ENDINGS:
        if name.endswith(ending):
            return show(value)
    return group_digits(value) if isinstance(value, int) else format_number(value, 4)


def named_pairs(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and shown values of a nested mapping, names joined with dots. Lists are left out: they are curves.

    A name below one that carries a unit is shown in that unit: `parts_bytes.activations` is bytes.
    """
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from named_pairs(value, f"{name}.")
        elif not isinstance(value, (list, tuple)):
            yield name, show_named(_carrier(name), value)


def _carrier(name: str) -> str:
    """The part of a dotted name that carries the unit: `parts_bytes.activations` is bytes, `seconds_by_kind.copy` s."""
    for part in name.split("."):
        if any(part.endswith(ending) for ending, _ in _ENDINGS):
            return part
        if "_by_" in part:
            quantity = part.partition("_by_")[0]
            return "_s" if quantity == "seconds" else quantity
    return name
