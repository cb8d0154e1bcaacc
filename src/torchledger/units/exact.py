"""Numbers to text that reads back to the same number: for config files and for anything that a machine reads again."""

from torchledger.units.parse import parse_flops_per_s, parse_rate
from torchledger.units.show import group_digits

_COUNT = (("E", 10**18), ("P", 10**15), ("T", 10**12), ("B", 10**9), ("M", 10**6), ("k", 10**3))
_BYTES = (
    *(("EiB", 2**60), ("PiB", 2**50), ("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)),
    *(("EB", 10**18), ("PB", 10**15), ("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)),
)
_SECONDS = (("d", 86400), ("h", 3600), ("m", 60))


def format_count_exact(n: int) -> str:
    """The shortest exact text: a suffix when the number is a whole multiple of it, else every digit.

    >>> format_count_exact(70 * 10**9), format_count_exact(8030261248)
    ('70B', '8,030,261,248')
    """
    for suffix, size in _COUNT:
        if n >= size and n % size == 0:
            return f"{group_digits(n // size)}{suffix}"
    return group_digits(n)


def format_bytes_exact(n: int) -> str:
    """The exact text in the unit that leaves the smallest whole number, binary or decimal.

    >>> format_bytes_exact(80 * 10**9), format_bytes_exact(80 * 2**30), format_bytes_exact(8197128)
    ('80 GB', '80 GiB', '8,197,128 B')
    """
    units = [(n // size, unit) for unit, size in _BYTES if n >= size and n % size == 0]
    whole, unit = min(units, default=(n, "B"))
    return f"{group_digits(whole)} {unit}"


def format_duration_exact(s: float) -> str:
    """Whole seconds as days, hours, minutes and seconds; anything else as a float of seconds.

    >>> format_duration_exact(273600), format_duration_exact(90), format_duration_exact(0.1)
    ('3d 4h', '1m 30s', '0.1 s')
    """
    if s != int(s) or s < 60:
        return f"{s!r} s"
    rest, parts = int(s), []
    for unit, size in _SECONDS:
        whole, rest = divmod(rest, size)
        if whole:
            parts.append(f"{whole}{unit}")
    if rest:
        parts.append(f"{rest}s")
    return " ".join(parts)


def format_rate_exact(x: float) -> str:
    """Bytes per second, scaled when that reads back to the same float.

    >>> format_rate_exact(3.35e12)
    '3.35 TB/s'
    """
    for prefix, size in (("T", 10**12), ("G", 10**9), ("M", 10**6)):
        text = f"{x / size!r} {prefix}B/s"
        if x >= size and parse_rate(text) == x:
            return text
    return f"{x!r} B/s"


def format_flops_per_s_exact(x: float) -> str:
    """Operations per second, scaled when that reads back to the same float.

    >>> format_flops_per_s_exact(989.4e12)
    '989.4 TFLOP/s'
    """
    for prefix, size in (("P", 10**15), ("T", 10**12), ("G", 10**9)):
        text = f"{x / size!r} {prefix}FLOP/s"
        if x >= size and parse_flops_per_s(text) == x:
            return text
    return f"{x!r} FLOP/s"
