"""The formats that are known, by any of their names."""

import tomllib
from functools import cache
from pathlib import Path

from torchledger.formats.format import FormatError, NumberFormat


@cache
def known() -> tuple[NumberFormat, ...]:
    """All known formats, widest first, from `formats.toml` beside this file."""
    tables = tomllib.loads((Path(__file__).parent / "formats.toml").read_text(encoding="utf-8"))
    return tuple(
        NumberFormat(
            name=name,
            title=table["title"],
            exponent_bits=table["exponent_bits"],
            mantissa_bits=table["mantissa_bits"],
            bias=(1 << table["exponent_bits"] - 1) - 1,  # IEEE 754-2019, section 3.3: emax
            has_infinity=table["infinity"],
            nan=table["nan"],
            bytes_per_element=table["bytes"],
            cast_saturates=table["cast_saturates"],
            cast_note=table.get("cast_note", ""),
            aliases=tuple(table["aliases"]),
            use=table["use"],
            source=table["source"],
        )
        for name, table in tables.items()
    )


@cache
def _by_spelling() -> dict[str, NumberFormat]:
    return {spelling.lower(): number_format for number_format in known() for spelling in _spellings(number_format)}


def _spellings(number_format: NumberFormat) -> tuple[str, ...]:
    return (number_format.name, *number_format.aliases)


def get(name: str | NumberFormat) -> NumberFormat:
    """The format of a name: `FP16`, `fp16`, `float16`, `half`, `torch.float16`, and so on; upper or lower case.

    >>> get("torch.bfloat16").name, get("half").name, get("e4m3").name
    ('BF16', 'FP16', 'FP8_E4M3')

    Raises:
        FormatError: no format is called so, with the one that was probably meant and all that are known.
    """
    if isinstance(name, NumberFormat):
        return name
    plain = name.strip().lower().removeprefix("torch.").replace("-", "_").replace(" ", "_")
    found = _by_spelling().get(plain)
    if found is None:
        raise FormatError(_unknown(name, plain))
    return found


def _unknown(name: str, plain: str) -> str:
    import difflib  # costs 6 ms and is needed only when something is wrong

    starting = [one.name for one in known() if plain and one.name.lower().startswith(plain)]
    near = difflib.get_close_matches(plain, _by_spelling(), n=1)
    names = ", ".join(one.name for one in known())
    if len(starting) > 1:
        return f"number format {name!r} may be {' or '.join(starting)}; write which"
    if near:
        return f"unknown number format {name!r}; did you mean {_by_spelling()[near[0]].name}? Known: {names}"
    return f"unknown number format {name!r}; known: {names}"
