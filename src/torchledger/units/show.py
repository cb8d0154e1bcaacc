"""Numbers to text, for people: three significant figures, memory in binary units, rates and counts in decimal ones.

A value that is shown whole drops its trailing zeros (`80 GB` is 80e9 bytes to the last one; `80.0 GB` is rounded).
`None`, an unknown amount, is always "unknown", never zero. Negative amounts (differences) keep their sign.
"""

import math

_DECIMAL = ("", "k", "M", "G", "T", "P", "E")
_COUNT = ("", "k", "M", "B", "T", "P", "E")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
UNKNOWN = "unknown"


def group_digits(n: float | None) -> str:
    """All digits of a whole number, in groups of three.

    >>> group_digits(8030261248)
    '8,030,261,248'
    """
    if n is None:
        return UNKNOWN
    return f"{n:,}" if isinstance(n, int) else f"{n:,.0f}"


def format_number(x: float | None, figures: int = 3) -> str:
    """A plain number to `figures` significant figures, without a unit and without an exponent from 1e-4 to 1e21.

    >>> format_number(0.012345), format_number(1023.4), format_number(6.3e24)
    ('0.0123', '1,023', '6.30e24')
    """
    if x is None:
        return UNKNOWN
    if not math.isfinite(x):
        return str(float(x))
    if x == 0:
        return "0"
    if not 1e-4 <= abs(x) < 1e21:
        mantissa, exponent = f"{x:.{figures - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    places = max(0, figures - 1 - _magnitude(x, figures))
    shown = f"{x:,.{places}f}"
    if places and float(shown.replace(",", "")) == x:
        return shown.rstrip("0").rstrip(".")
    return shown


def _magnitude(x: float, figures: int) -> int:
    """The power of ten of the leading digit once `x` is rounded to `figures` figures."""
    return int(f"{x:.{figures - 1}e}".split("e")[1])


def _scaled(x: float, step: int, prefixes: tuple[str, ...], figures: int) -> tuple[str, str]:
    """The number and the prefix to show `x` with; 999,999 becomes 1.00 of the next prefix, not 1000 of this one."""
    if not math.isfinite(x):
        return format_number(x), prefixes[0]
    index = 0
    while index + 1 < len(prefixes) and abs(x) >= step ** (index + 1):
        index += 1
    shown = format_number(_divide(x, step**index), figures)
    if index + 1 < len(prefixes) and shown.lstrip("-") == f"{step:,}":
        index += 1
        shown = format_number(_divide(x, step**index), figures)
    return shown, prefixes[index]


def _divide(x: float, scale: int) -> float:
    """`x / scale`, left whole when it is, so that large integers stay exact."""
    return x // scale if isinstance(x, int) and x % scale == 0 else x / scale


def format_count(n: float | None) -> str:
    """A number of things.

    >>> format_count(8030261248), format_count(70 * 10**9), format_count(512)
    ('8.03B', '70B', '512')
    """
    if n is None:
        return UNKNOWN
    if abs(n) >= 1e21:
        return format_number(n)
    return "".join(_scaled(n, 1000, _COUNT, 3))


def format_bytes(n: float | None) -> str:
    """An amount of memory, in binary units.

    >>> format_bytes(2415919104), format_bytes(85520809984)
    ('2.25 GiB', '79.6 GiB')
    """
    return UNKNOWN if n is None else " ".join(_scaled(n, 1024, _BINARY, 3))


def format_bytes_decimal(n: float | None) -> str:
    """An amount of bytes in decimal units, for what is sold or sent so.

    >>> format_bytes_decimal(80 * 10**9)
    '80 GB'
    """
    return _with_unit(n, "B", 3)


def format_flops(n: float | None) -> str:
    """An amount of work.

    >>> format_flops(1973000000000), format_flops(6.3e24)
    ('1.97 TFLOP', '6.30e24 FLOP')
    """
    return _with_unit(n, "FLOP", 3)


def format_flops_per_s(x: float | None) -> str:
    """A computing rate; four figures, as data sheets give them.

    >>> format_flops_per_s(989.4e12), format_flops_per_s(312e12)
    ('989.4 TFLOP/s', '312 TFLOP/s')
    """
    return _with_unit(x, "FLOP/s", 4)


def format_rate(x: float | None) -> str:
    """Bytes per second.

    >>> format_rate(3.35e12)
    '3.35 TB/s'
    """
    return _with_unit(x, "B/s", 3)


def _with_unit(x: float | None, unit: str, figures: int) -> str:
    if x is None:
        return UNKNOWN
    if abs(x) >= 1e21:
        return f"{format_number(x, figures)} {unit}"
    shown, prefix = _scaled(x, 1000, _DECIMAL, figures)
    return f"{shown} {prefix}{unit}"


def format_duration(s: float | None) -> str:
    """A span of time: below a minute three figures, above it two units, rounded to the smaller one.

    >>> format_duration(12446000), format_duration(1.83), format_duration(0.0123)
    ('144d 01h', '1.83 s', '12.3 ms')
    """
    if s is None:
        return UNKNOWN
    if s < 0:
        return "-" + format_duration(-s)
    if not math.isfinite(s):
        return f"{format_number(s)} s"
    if s < 60 and format_number(s) != "60.0":
        return _below_a_minute(s)
    for small, large, size, parts in (("s", "m", 1, 60), ("m", "h", 60, 60), ("h", "d", 3600, 24)):
        whole, part = divmod(round(s / size), parts)
        if large == "d" or whole < (60 if large == "m" else 24):
            return f"{whole:,}{large} {part:02d}{small}"
    raise AssertionError  # the last unit takes everything


def _below_a_minute(s: float) -> str:
    """In the largest unit that leaves at least 1 of it; 999.9 ms is 1 s."""
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if s == 0 or s * scale >= 1 or format_number(s * scale * 1e3) == "1,000":
            return f"{format_number(round(s * scale, 9))} {unit}"
    return f"{format_number(s * 1e9)} ns"


def format_money(x: float | None, currency: str = "USD") -> str:
    """Money: cents below a thousand, whole units below a million, three figures above.

    >>> format_money(2.8), format_money(12.5e6), format_money(2.8, "EUR"), format_money(45120.4)
    ('$2.80', '$12.5M', '2.80 EUR', '$45,120')
    """
    if x is None:
        return UNKNOWN
    size = abs(x)
    if not math.isfinite(size) or (0 < size < 0.01):
        shown = format_number(size)
    elif round(size, 2) < 1000:
        shown = f"{size:.2f}"
    elif round(size) < 10**6:
        shown = f"{size:,.0f}"
    else:
        shown = format_count(size)
    sign = "-" if x < 0 else ""
    return f"{sign}${shown}" if currency == "USD" else f"{sign}{shown} {currency}"


def format_percent(x: float | None) -> str:
    """A share, one being 100 %.

    >>> format_percent(0.431), format_percent(1.5)
    ('43.1 %', '150 %')
    """
    return UNKNOWN if x is None else f"{format_number(round(x * 100, 12) if abs(x) >= 1e-4 else x * 100)} %"
