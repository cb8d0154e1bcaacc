"""What a bit pattern means, exactly."""

import math
from typing import Literal

from torchledger.formats.catalog import ScalarFormat, scalar
from torchledger.formats.format import FormatError, NumberFormat
from torchledger.formats.integer import IntegerFormat

Kind = Literal["zero", "subnormal", "normal", "infinity", "nan"]


def decode(bits: int, number_format: str | ScalarFormat) -> float:
    """What a pattern means, exactly.

    >>> decode(0x7BFF, "fp16"), decode(0x7E, "e4m3"), decode(0x7F, "e4m3"), decode(0xFF, "int8")
    (65504.0, 448.0, nan, -1.0)

    Raises:
        FormatError: the format is unknown or holds no number alone, or the pattern has more bits than it.
    """
    fmt = scalar(number_format)
    if isinstance(fmt, IntegerFormat):
        return math.ldexp(_integer(bits, fmt), fmt.step_exponent)
    sign, exponent, mantissa = _fields(bits, fmt)
    magnitude = exponent << fmt.mantissa_bits | mantissa
    if magnitude > fmt.largest_pattern:
        value = math.inf if fmt.has_infinity and mantissa == 0 else math.nan
    elif exponent == 0 and fmt.has_zero:
        value = math.ldexp(mantissa, fmt.smallest_exponent - fmt.mantissa_bits)
    else:
        value = math.ldexp(mantissa | 1 << fmt.mantissa_bits, exponent - fmt.bias - fmt.mantissa_bits)
    return math.copysign(value, -1 if sign else 1)


def kind_of(bits: int, number_format: str | ScalarFormat) -> Kind:
    """What sort of number a pattern is. An integer other than zero is normal.

    Raises:
        FormatError: the format is unknown or holds no number alone, or the pattern has more bits than it.
    """
    fmt = scalar(number_format)
    if isinstance(fmt, IntegerFormat):
        return "normal" if _integer(bits, fmt) else "zero"
    _, exponent, mantissa = _fields(bits, fmt)
    if exponent << fmt.mantissa_bits | mantissa > fmt.largest_pattern:
        return "infinity" if fmt.has_infinity and mantissa == 0 else "nan"
    if exponent == 0 and fmt.has_zero:
        return "subnormal" if mantissa else "zero"
    return "normal"


def bit_pattern(bits: int, number_format: str | ScalarFormat) -> str:
    """The bits in writing, sign, exponent and mantissa apart; those of an integer after its sign together.

    >>> bit_pattern(0x3C01, "fp16"), bit_pattern(0x80, "e8m0"), bit_pattern(0xFF, "int8")
    ('0 01111 0000000001', '10000000', '1 1111111')

    Raises:
        FormatError: the format is unknown or holds no number alone, or the pattern has more bits than it.
    """
    fmt = scalar(number_format)
    if isinstance(fmt, IntegerFormat):
        _integer(bits, fmt)
        written = f"{bits:0{fmt.bits}b}"
        return f"{written[0]} {written[1:]}"
    sign, exponent, mantissa = _fields(bits, fmt)
    fields = (
        f"{sign}" if fmt.signed else "",
        f"{exponent:0{fmt.exponent_bits}b}",
        f"{mantissa:0{fmt.mantissa_bits}b}" if fmt.mantissa_bits else "",
    )
    return " ".join(filter(None, fields))


def read_pattern(text: str, number_format: str | ScalarFormat) -> int:
    """A pattern as people write it: hexadecimal after `0x`, binary after `0b`, or its bits, spaced or not.

    >>> read_pattern("0x3C01", "fp16") == read_pattern("0 01111 0000000001", "fp16")
    True

    Raises:
        FormatError: the text is no pattern of the format.
    """
    fmt = scalar(number_format)
    plain = text.replace("_", "").replace(" ", "").lower()
    try:
        bits = int(plain, 16) if plain.startswith("0x") else int(plain.removeprefix("0b"), 2)
    except ValueError:
        raise FormatError(f"{text!r} is no bit pattern; write 0x3C01, 0b11 or the bits '0 01111 0000000001'") from None
    if not 0 <= bits < 1 << fmt.bits:
        raise FormatError(f"{text!r} is no pattern of {fmt.name}, which has {fmt.bits} bits")
    return bits


def _fields(bits: int, fmt: NumberFormat) -> tuple[int, int, int]:
    """Sign, exponent field and mantissa field."""
    _check(bits, fmt)
    mantissa = bits & (1 << fmt.mantissa_bits) - 1
    exponent = bits >> fmt.mantissa_bits & (1 << fmt.exponent_bits) - 1
    return bits >> fmt.exponent_bits + fmt.mantissa_bits, exponent, mantissa


def _integer(bits: int, fmt: IntegerFormat) -> int:
    """The integer of a two's complement pattern."""
    _check(bits, fmt)
    return bits - (1 << fmt.bits) if bits >> fmt.bits - 1 else bits


def _check(bits: int, fmt: ScalarFormat) -> None:
    if not 0 <= bits < 1 << fmt.bits:
        raise FormatError(f"{bits:#x} is no pattern of {fmt.name}, which has {fmt.bits} bits")
