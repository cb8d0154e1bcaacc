"""Text to numbers and numbers to text: the only place in the house where `70B` means anything.

Everywhere else an amount is a plain `int` or `float` in an SI base unit, and its name carries the unit (`peak_bytes`,
`step_s`, `peak_flops_per_s`).

*Reading.* There is one parser per quantity, because the same letters mean different things: `70B` is 70e9 as a count
and 70 bytes as a size. GB is 10^9 and GiB is 2^30, and a bare `80G` of memory is refused because it could be either. A
small b means bits and is accepted in rates alone (`400Gb/s`). `TFLOP` is work, `TFLOP/s` is speed, and neither is read
as the other. Numbers are read as exact integer ratios and rounded once, so `8.03B` is 8,030,000,000 and not one less.
All mistakes are `UnitError`, which says what was read, what is wrong with it, and what is accepted.

*Showing.* `format_*` give three significant figures for people (memory in GiB, rates in GB/s); `None` is "unknown".
`format_*_exact` give text that reads back to the same number.

*Declaring.* `tokens: Count` in a dataclass is an `int` to Python, and tells `torchledger.config` that text is welcome.

    number.py   exact reading of the number at the start of a text; UnitError
    parse.py    text -> number, one function per quantity
    show.py     number -> text for people
    exact.py    number -> text that reads back
    amount.py   the Annotated field types
"""

from torchledger.units.amount import Amount, Bytes, Count, Flops, FlopsPerSecond, Rate, Seconds
from torchledger.units.exact import (
    format_bytes_exact,
    format_count_exact,
    format_duration_exact,
    format_flops_per_s_exact,
    format_rate_exact,
)
from torchledger.units.number import UnitError
from torchledger.units.parse import (
    parse_bytes,
    parse_count,
    parse_duration,
    parse_flops,
    parse_flops_per_s,
    parse_money,
    parse_rate,
)
from torchledger.units.show import (
    UNKNOWN,
    format_bytes,
    format_bytes_decimal,
    format_count,
    format_duration,
    format_flops,
    format_flops_per_s,
    format_money,
    format_number,
    format_percent,
    format_rate,
    group_digits,
)

__all__ = [
    "UNKNOWN",
    "Amount",
    "Bytes",
    "Count",
    "Flops",
    "FlopsPerSecond",
    "Rate",
    "Seconds",
    "UnitError",
    "format_bytes",
    "format_bytes_decimal",
    "format_bytes_exact",
    "format_count",
    "format_count_exact",
    "format_duration",
    "format_duration_exact",
    "format_flops",
    "format_flops_per_s",
    "format_flops_per_s_exact",
    "format_money",
    "format_number",
    "format_percent",
    "format_rate",
    "format_rate_exact",
    "group_digits",
    "parse_bytes",
    "parse_count",
    "parse_duration",
    "parse_flops",
    "parse_flops_per_s",
    "parse_money",
    "parse_rate",
]
