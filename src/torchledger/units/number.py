"""Reading the number at the start of a text, exactly: as a ratio of two integers, never through a float."""

import math
import re
from typing import NamedTuple

_LONGEST_TEXT = 200
_LARGEST_POWER_OF_TEN = 400
_LARGEST_BITS = 900  # 8e270: a float still holds it times the largest prefix

_NUMBER = re.compile(
    r"""
    (?P<base>[0-9]+) \s* (?:\*\*|\^) \s* (?P<power>[0-9]+)      # 2**19
    |
    (?P<whole> [0-9]{1,3}(?:,[0-9]{3})+ (?![0-9])               # 8,030,261,248
             | [0-9]+(?:_[0-9]+)* )?                            # 524_288
    (?: \. (?P<fraction>[0-9]*) )?
    (?: [eE] (?P<exponent>[+-]?[0-9]+) )?
    """,
    re.VERBOSE,
)


class UnitError(ValueError):
    """A text or number that is not the amount it should be.

    Attributes:
        text: what was read, as given.
        quantity: what it should have been, such as "a count".
        reason: what is wrong with it.
        accepts: examples of what is accepted.
    """

    def __init__(self, text: object, quantity: str, reason: str, accepts: str) -> None:
        super().__init__(f"cannot read {text!r} as {quantity}: {reason}; accepted: {accepts}")
        self.text = text
        self.quantity = quantity
        self.reason = reason
        self.accepts = accepts


class Ratio(NamedTuple):
    """An exact non-negative number: `numerator / denominator`, both integers, the denominator positive."""

    numerator: int
    denominator: int = 1

    def times(self, factor: "Ratio | int") -> "Ratio":
        """The product with a whole number or another ratio (not reduced)."""
        other = factor if isinstance(factor, Ratio) else Ratio(factor)
        return Ratio(self.numerator * other.numerator, self.denominator * other.denominator)

    def plus(self, other: "Ratio") -> "Ratio":
        """The sum with another ratio (not reduced)."""
        return Ratio(
            self.numerator * other.denominator + other.numerator * self.denominator,
            self.denominator * other.denominator,
        )

    def is_whole(self) -> bool:
        """Whether it is an integer."""
        return self.numerator % self.denominator == 0

    def nearest_int(self) -> int:
        """The nearest integer; halfway goes up."""
        return (2 * self.numerator + self.denominator) // (2 * self.denominator)

    def as_float(self) -> float:
        """The nearest float: Python divides integers with one correct rounding."""
        return self.numerator / self.denominator


class Quantity(NamedTuple):
    """What a text should be, for the error messages: its name ("a count") and examples of what is accepted."""

    name: str
    accepts: str

    def refuse(self, text: object, reason: str) -> UnitError:
        """The error that says `text` is no such quantity, and why."""
        return UnitError(text, self.name, reason, self.accepts)


def split_number(text: str, quantity: Quantity, whole_text: str | None = None) -> tuple[Ratio, str]:
    """The number at the start of `text` and what follows it, both stripped of spaces.

    Args:
        text: what to read.
        quantity: what it should be, for the message.
        whole_text: what the user wrote, where `text` is only a part of it.

    Raises:
        UnitError: the text is empty, is negative, does not begin with a number, or is larger than 8e270.
    """
    given = text if whole_text is None else whole_text
    stripped = text.strip()
    if not stripped:
        raise quantity.refuse(given, "there is no number in it" if given.strip() else "it is empty")
    if len(stripped) > _LONGEST_TEXT:
        raise quantity.refuse(given[:40] + "...", f"it is {len(given)} characters long")
    if stripped[0] in "-−":
        raise quantity.refuse(given, "it is negative")
    if stripped.lower().removeprefix("+") in {"nan", "inf", "infinity"}:
        raise quantity.refuse(given, "it is not a finite number")
    match = _NUMBER.match(stripped)
    if match is None or not (match["base"] or match["whole"] or match["fraction"]):
        raise quantity.refuse(given, "it does not begin with a number")
    if match["base"]:
        number = _power(int(match["base"]), int(match["power"]))
    else:
        number = _decimal(match["whole"] or "", match["fraction"] or "", match["exponent"] or "0")
    if number is None:
        raise quantity.refuse(given, "it is too large or too small")
    rest = stripped[match.end() :].strip()
    if rest[:1] in {",", ".", "_"} or rest[:1].isdigit():
        raise quantity.refuse(
            given, f"the number ends oddly at {rest!r} (a point marks decimals, commas group by three)"
        )
    return number, rest


def _power(base: int, power: int) -> Ratio | None:
    if base > 1 and (power > _LARGEST_BITS or base.bit_length() * power > 2 * _LARGEST_BITS):
        return None
    return _in_range(Ratio(base ** (power if base > 1 else min(power, 1))))


def _decimal(whole: str, fraction: str, exponent: str) -> Ratio | None:
    if len(exponent) > len("-400") or abs(int(exponent)) > _LARGEST_POWER_OF_TEN:
        return None
    digits = int(whole.replace(",", "").replace("_", "") + fraction or "0")
    shift = int(exponent) - len(fraction)
    return _in_range(Ratio(digits * 10**shift) if shift >= 0 else Ratio(digits, 10**-shift))


def _in_range(number: Ratio) -> Ratio | None:
    return number if number.numerator < number.denominator << _LARGEST_BITS else None


def exact_number(number: float, quantity: Quantity) -> Ratio:
    """An int or float as an exact ratio.

    Raises:
        UnitError: it is a truth value, negative, or not finite.
    """
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise quantity.refuse(number, f"it is a {type(number).__name__}")
    if not math.isfinite(number):
        raise quantity.refuse(number, "it is not a finite number")
    if number < 0:
        raise quantity.refuse(number, "it is negative")
    return Ratio(*number.as_integer_ratio())
