"""The formats that are known, by any of their names."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from torchledger.formats.block import BlockFormat
from torchledger.formats.format import FormatError, NumberFormat
from torchledger.formats.integer import IntegerFormat

#: A format that holds one number in one pattern.
ScalarFormat: TypeAlias = NumberFormat | IntegerFormat
Format: TypeAlias = ScalarFormat | BlockFormat


@cache
def every() -> tuple[Format, ...]:
    """All formats of all kinds, in the order of `formats.toml` beside this file."""
    tables = tomllib.loads((Path(__file__).parent / "formats.toml").read_text(encoding="utf-8"))
    made: dict[str, Format] = {}
    for name, table in tables.items():
        match table.get("family", "float"):
            case "float":
                made[name] = _floating(name, table)
            case "integer":
                made[name] = _integer(name, table)
            case _:
                made[name] = _block(name, table, made)
    return tuple(made.values())


def _floating(name: str, table: dict[str, Any]) -> NumberFormat:
    signed = table.get("signed", True)
    return NumberFormat(
        name=name,
        title=table["title"],
        exponent_bits=table["exponent_bits"],
        mantissa_bits=table["mantissa_bits"],
        bias=(1 << table["exponent_bits"] - 1) - 1,  # IEEE 754-2019, section 3.3: emax
        signed=signed,
        has_zero=table.get("zero", True),
        has_infinity=table["infinity"],
        nan=table["nan"],
        stored_bits=table.get("stored_bits", signed + table["exponent_bits"] + table["mantissa_bits"]),
        cast_saturates=table["cast_saturates"],
        cast_note=table.get("cast_note", ""),
        aliases=tuple(table["aliases"]),
        use=table["use"],
        source=table["source"],
    )


def _integer(name: str, table: dict[str, Any]) -> IntegerFormat:
    return IntegerFormat(
        name=name,
        title=table["title"],
        bits=table["bits"],
        step_exponent=table["step_exponent"],
        is_symmetric=table["symmetric"],
        cast_note=table.get("cast_note", ""),
        aliases=tuple(table["aliases"]),
        use=table["use"],
        source=table["source"],
    )


def _block(name: str, table: dict[str, Any], made: dict[str, Format]) -> BlockFormat:
    element, scale, tensor_scale = made[table["element"]], made[table["scale"]], made.get(table.get("tensor_scale", ""))
    assert not isinstance(element, BlockFormat), f"{name}: blocks of blocks"
    assert isinstance(scale, NumberFormat), f"{name}: a scale is a floating-point number"
    assert tensor_scale is None or isinstance(tensor_scale, NumberFormat), f"{name}: so is a tensor's scale"
    return BlockFormat(
        name=name,
        title=table["title"],
        element=element,
        scale=scale,
        block_size=table["block_size"],
        tensor_scale=tensor_scale,
        aliases=tuple(table["aliases"]),
        use=table["use"],
        source=table["source"],
    )


@cache
def known() -> tuple[NumberFormat, ...]:
    """All floating-point formats that hold numbers of either sign, widest first (E8M0, which holds scales, apart)."""
    return tuple(fmt for fmt in every() if isinstance(fmt, NumberFormat) and fmt.signed)


@cache
def blocks() -> tuple[BlockFormat, ...]:
    """All formats whose elements share scales."""
    return tuple(fmt for fmt in every() if isinstance(fmt, BlockFormat))


@cache
def _by_spelling() -> dict[str, Format]:
    return {spelling.lower(): fmt for fmt in every() for spelling in (fmt.name, *fmt.aliases)}


def find(name: str | Format) -> Format:
    """The format of a name, of any kind: a number format, an integer format, or a block format.

    >>> find("mxfp4").name, find("torch.int8").name
    ('MXFP4', 'INT8')

    Raises:
        FormatError: no format is called so, with the one that was probably meant and all that are known.
    """
    if not isinstance(name, str):
        return name
    plain = name.strip().lower().removeprefix("torch.").replace("-", "_").replace(" ", "_")
    found = _by_spelling().get(plain)
    if found is None:
        raise FormatError(_unknown(name, plain))
    return found


def scalar(name: str | ScalarFormat) -> ScalarFormat:
    """The format of a name that holds one number in one pattern.

    Raises:
        FormatError: the format is unknown, or a number has no pattern of its own in it.
    """
    found = find(name)
    if isinstance(found, BlockFormat):
        raise FormatError(
            f"{found.name} holds blocks of {found.block_size} numbers that share a scale, no number alone; its "
            f"elements are {found.element.name}"
        )
    return found


def get(name: str | NumberFormat) -> NumberFormat:
    """The floating-point format of a name: `FP16`, `fp16`, `half`, `torch.float16`, and so on; upper or lower case.

    >>> get("torch.bfloat16").name, get("half").name, get("e4m3").name
    ('BF16', 'FP16', 'FP8_E4M3')

    Raises:
        FormatError: no format is called so, with the one that was probably meant and all that are known; or it is an
            integer or block format.
    """
    found = scalar(name)
    if isinstance(found, IntegerFormat):
        raise FormatError(f"{found.name} is an integer format: it has no exponent; write the name of a floating one")
    return found


def block(name: str | BlockFormat) -> BlockFormat:
    """The block format of a name.

    Raises:
        FormatError: the format is unknown, or its elements share no scale.
    """
    found = find(name)
    if not isinstance(found, BlockFormat):
        names = ", ".join(fmt.name for fmt in blocks())
        raise FormatError(f"{found.name} has no blocks; formats that have: {names}")
    return found


def _unknown(name: str, plain: str) -> str:
    import difflib  # costs 6 ms and is needed only when something is wrong

    starting = [one.name for one in every() if one.name.lower().startswith(f"{plain}_")]
    near = difflib.get_close_matches(plain, _by_spelling(), n=1)
    names = ", ".join(one.name for one in every())
    if len(starting) > 1:
        return f"number format {name!r} may be {' or '.join(starting)}; write which"
    if near:
        return f"unknown number format {name!r}; did you mean {_by_spelling()[near[0]].name}? Known: {names}"
    return f"unknown number format {name!r}; known: {names}"
