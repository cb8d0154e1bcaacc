"""Text to numbers: one parser per quantity, because `70B` is 70e9 as a count and 70 bytes as a size."""

import re

from torchledger.units.number import Quantity, Ratio, exact_number, split_number

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_FLOP_PREFIX = _DECIMAL | {"Z": 10**21, "Y": 10**24}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_COUNT_SUFFIX = {
    "": 1,
    **dict.fromkeys(("k", "K", "thousand"), 10**3),
    **dict.fromkeys(("m", "M", "million"), 10**6),
    **dict.fromkeys(("b", "B", "g", "G", "billion"), 10**9),
    **dict.fromkeys(("t", "T", "trillion"), 10**12),
    **dict.fromkeys(("P", "quadrillion"), 10**15),
    "E": 10**18,
}
_SECONDS = {
    **{name: Ratio(1, 10**9) for name in ("ns",)},
    **{name: Ratio(1, 10**6) for name in ("us", "µs", "μs")},
    **{name: Ratio(1, 10**3) for name in ("ms",)},
    **{name: Ratio(1) for name in ("s", "sec", "secs", "second", "seconds")},
    **{name: Ratio(60) for name in ("m", "min", "mins", "minute", "minutes")},
    **{name: Ratio(3600) for name in ("h", "hr", "hrs", "hour", "hours")},
    **{name: Ratio(86400) for name in ("d", "day", "days")},
    **{name: Ratio(7 * 86400) for name in ("w", "week", "weeks")},
}
_LETTERS = "abcdefghijklmnopqrstuvwxyzµμ"
_CURRENCY_SIGN = {"$": "USD", "€": "EUR", "£": "GBP"}

COUNT = Quantity("a count", "70B, 15T, 4.2M, 7k, 1e12, 524_288, 2**19 (whole numbers; B is 10^9)")
BYTES = Quantity("an amount of bytes", "80GB (80e9), 80GiB (80*2^30), 512 MiB, 4096 B, 80e9 (bytes)")
RATE = Quantity("a rate in bytes per second", "3.35TB/s, 50 GB/s, 400Gb/s (bits), 3.35e12 (bytes per second)")
FLOPS = Quantity("an amount of work", "1.97 TFLOP, 6.3e24 FLOP, 6.3e24")
FLOPS_PER_S = Quantity("a computing rate", "989.4 TFLOP/s, 1.979 PFLOP/s, 312 TFLOPS, 1979e12 (FLOP per second)")
DURATION = Quantity("a duration", "3d 4h, 1h30m, 144 days, 3d 04:10, 01:30:00, 12.3 ms, 90 (seconds)")
MONEY = Quantity("an amount of money", "$2.80, 2.80 EUR, USD 2.80, $12.5M, 2.80 (US dollars)")


def parse_count(text: str | float) -> int:
    """A number of things (parameters, tokens, chips).

    >>> parse_count("70B"), parse_count("524_288"), parse_count("2**19")
    (70000000000, 524288, 524288)

    Raises:
        UnitError: it is not a whole, non-negative number with a known suffix.
    """
    if not isinstance(text, str):
        number = exact_number(text, COUNT)
    else:
        number, suffix = split_number(text, COUNT)
        factor = _COUNT_SUFFIX.get(suffix, _COUNT_SUFFIX.get(suffix.lower()) if len(suffix) > 1 else None)
        if factor is None:
            raise COUNT.refuse(text, f"{suffix!r} is no known suffix")
        number = number.times(factor)
    if not number.is_whole():
        raise COUNT.refuse(text, "it is not a whole number")
    return number.nearest_int()


def parse_bytes(text: str | float) -> int:
    """An amount of memory in bytes; GB is 10^9 and GiB is 2^30, always. A part of a byte is rounded away.

    >>> parse_bytes("80GB"), parse_bytes("80GiB"), parse_bytes("512 MiB")
    (80000000000, 85899345920, 536870912)

    Raises:
        UnitError: it is negative, in bits, a bare `80G`, or not a number of bytes.
    """
    if not isinstance(text, str):
        number, unit = exact_number(text, BYTES), ""
    else:
        number, unit = split_number(text, BYTES)
    factor = {"": 1, "byte": 1, "bytes": 1, "Byte": 1, "Bytes": 1}.get(unit) or _byte_factor(unit)
    if factor is None:
        raise BYTES.refuse(text, _why_no_bytes(unit))
    exact = number.times(factor)
    if factor == 1 and not exact.is_whole():
        raise BYTES.refuse(text, "it is not a whole number of bytes")
    return exact.nearest_int()


def _byte_factor(unit: str) -> int | None:
    """Bytes in `GB`, `GiB`, `B`; None for anything else."""
    if not unit.endswith("B"):
        return None
    return (_DECIMAL | _BINARY).get(unit[:-1])


def _why_no_bytes(unit: str) -> str:
    if unit.endswith(("b", "bit", "bits", "bps")) and not unit.endswith("ib"):
        return "a small b means bits, which are used for rates only; write bytes with a capital B"
    if unit in _DECIMAL or unit in _BINARY:
        letter = unit[0].upper()
        return f"{unit!r} may mean {letter}B (decimal) or {letter}iB (binary); write which"
    return f"{unit!r} is no known unit"


def parse_rate(text: str | float) -> float:
    """Bytes per second. A capital B is bytes, a small b is bits: `400Gb/s` is 50e9 bytes per second.

    >>> parse_rate("3.35TB/s"), parse_rate("400Gb/s"), parse_rate("400 Gbps")
    (3350000000000.0, 50000000000.0, 50000000000.0)

    Raises:
        UnitError: it is negative, or not bytes or bits per second.
    """
    if not isinstance(text, str):
        return exact_number(text, RATE).as_float()
    number, unit = split_number(text, RATE)
    if not unit:
        return number.as_float()
    amount = re.sub(r"(\s*/\s*(s|sec|second)|ps)$", "", unit)
    if amount == unit:
        raise RATE.refuse(text, f"{unit!r} is not per second")
    factor = _byte_factor(amount)
    if factor is not None:
        return number.times(factor).as_float()
    bits = _byte_factor(re.sub(r"(b|bit|bits)$", "B", amount))
    if bits is None:
        raise RATE.refuse(text, f"{unit!r} is no known unit")
    return number.times(Ratio(bits, 8)).as_float()


def parse_flops(text: str | float) -> int:
    """A number of floating-point operations: work, not speed.

    >>> parse_flops("1.97 TFLOP")
    1970000000000

    Raises:
        UnitError: it is negative, not whole, or a rate.
    """
    if not isinstance(text, str):
        number = exact_number(text, FLOPS)
    else:
        number, unit = split_number(text, FLOPS)
        match = re.fullmatch(r"([kKMGTPEZY]?)(?:\s*(?:FLOP|FLOPs|flop|flops))?", unit)
        if match is None:
            is_rate = "/" in unit or unit.endswith("S")
            raise FLOPS.refuse(text, f"{unit!r} is a rate" if is_rate else f"{unit!r} is no known unit")
        number = number.times(_FLOP_PREFIX[match[1]])
    if not number.is_whole():
        raise FLOPS.refuse(text, "it is not a whole number")
    return number.nearest_int()


def parse_flops_per_s(text: str | float) -> float:
    """Floating-point (or integer) operations per second: speed, not work.

    >>> parse_flops_per_s("989.4 TFLOP/s"), parse_flops_per_s("1979e12")
    (989400000000000.0, 1979000000000000.0)

    Raises:
        UnitError: it is negative, or an amount of work such as `989 TFLOP`.
    """
    if not isinstance(text, str):
        return exact_number(text, FLOPS_PER_S).as_float()
    number, unit = split_number(text, FLOPS_PER_S)
    rate = re.fullmatch(r"([kKMGTPEZY]?)\s*(?:(?:FLOPs?|flops?|OPs?|ops?)\s*/\s*(?:s|sec|second)|FLOPS|OPS)?", unit)
    if rate is not None:
        return number.times(_FLOP_PREFIX[rate[1]]).as_float()
    if re.fullmatch(r"[kKMGTPEZY]?\s*(?:FLOPs?|flops?|OPs?)", unit):
        raise FLOPS_PER_S.refuse(text, f"{unit!r} is an amount of work; write {unit.rstrip('s')}/s for a speed")
    raise FLOPS_PER_S.refuse(text, f"{unit!r} is no known unit")


def parse_duration(text: str | float) -> float:
    """A span of time in seconds; parts add up.

    >>> parse_duration("3d 4h"), parse_duration("1h30m"), parse_duration("3d 04:10")
    (273600.0, 5400.0, 274200.0)

    Raises:
        UnitError: it is negative, empty, names an unknown unit or one unit twice, or is `04:10`, which might be
            hours and minutes or minutes and seconds.
    """
    if not isinstance(text, str):
        return exact_number(text, DURATION).as_float()
    total, rest, seen = Ratio(0), text.strip(), set[Ratio]()
    while rest or not seen:
        clock = re.fullmatch(r"([0-9]{1,2}):([0-5][0-9])(?::([0-5][0-9](?:\.[0-9]+)?))?", rest)
        if clock is not None:
            if clock[3] is None and not seen:
                raise DURATION.refuse(text, "it may be hours:minutes or minutes:seconds; write 4h10m or 04:10:00")
            seconds, _ = split_number(clock[3] or "0", DURATION, text)
            total = total.plus(Ratio(int(clock[1]) * 3600 + int(clock[2]) * 60)).plus(seconds)
            break
        number, rest = split_number(rest, DURATION, text)
        unit = rest[: len(rest) - len(rest.lstrip(_LETTERS))]
        if not rest and not seen:
            return number.as_float()
        factor = _SECONDS.get(unit)
        if factor is None:
            raise DURATION.refuse(text, f"{unit or rest!r} is no known unit" if rest else "its last part has no unit")
        if factor in seen:
            raise DURATION.refuse(text, f"{unit!r} is given twice")
        seen.add(factor)
        total, rest = total.plus(number.times(factor)), rest[len(unit) :].lstrip(" ,")
    return total.as_float()


def parse_money(text: str | float) -> tuple[float, str]:
    """An amount and its currency (an ISO 4217 code); US dollars when none is named.

    >>> parse_money("$2.80"), parse_money("2.80 EUR"), parse_money("$12.5M")
    ((2.8, 'USD'), (2.8, 'EUR'), (12500000.0, 'USD'))

    Raises:
        UnitError: it is negative, names two currencies, or a unit that is no currency.
    """
    if not isinstance(text, str):
        return exact_number(text, MONEY).as_float(), "USD"
    before = re.match(r"\s*([$€£]|[A-Z]{3}(?=[\s0-9.]))\s*", text)
    number, rest = split_number(text[before.end() :] if before else text, MONEY, text)
    after = re.fullmatch(r"([kKMBTPE]?|thousand|million|billion)\s*([$€£]|[A-Z]{3})?", rest)
    if after is None:
        raise MONEY.refuse(text, f"{rest!r} is neither a currency nor k, M or B")
    if before and after[2]:
        raise MONEY.refuse(text, "it names two currencies")
    name = (before and before[1]) or after[2] or "USD"
    return number.times(_COUNT_SUFFIX[after[1]]).as_float(), _CURRENCY_SIGN.get(name, name)
