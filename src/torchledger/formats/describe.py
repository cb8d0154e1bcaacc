"""The properties of a format as a plain row for a viewer to draw."""

from __future__ import annotations

from typing import Any

from torchledger.formats.block import BlockFormat
from torchledger.formats.catalog import Format, find
from torchledger.formats.format import NumberFormat
from torchledger.formats.integer import IntegerFormat


def describe(number_format: str | Format) -> dict[str, Any]:
    """All properties of a format as a plain row; which ones depends on its `family`.

    >>> row = describe("fp16")
    >>> row["max"], row["smallest_normal"] == 2**-14, row["epsilon"] == 2**-10, row["layout"]
    (65504.0, True, True, 's eeeee mmmmmmmmmm')
    >>> describe("mxfp4")["bits_per_element"], describe("int8")["min"]
    (4.25, -128.0)

    Raises:
        FormatError: the format is unknown.
    """
    fmt = find(number_format)
    match fmt:
        case NumberFormat():
            own = _floating(fmt)
        case IntegerFormat():
            own = _integer(fmt)
        case BlockFormat():
            own = _block(fmt)
    about = {"aliases": list(fmt.aliases), "use": fmt.use, "source": fmt.source}
    return {"name": fmt.name, "title": fmt.title, **own, **about}


def _floating(fmt: NumberFormat) -> dict[str, Any]:
    fields = ("s" if fmt.signed else "", "e" * fmt.exponent_bits, "m" * fmt.mantissa_bits)
    return {
        "family": "float",
        "bits": fmt.bits,
        "sign_bits": int(fmt.signed),
        "exponent_bits": fmt.exponent_bits,
        "mantissa_bits": fmt.mantissa_bits,
        "layout": " ".join(filter(None, fields)),
        "bias": fmt.bias,
        "bytes_per_element": fmt.bytes_per_element,
        "max": fmt.max,
        "min": -fmt.max if fmt.signed else fmt.smallest_normal,
        "smallest_normal": fmt.smallest_normal,
        "smallest_subnormal": fmt.smallest_subnormal if fmt.has_zero else None,
        "epsilon": fmt.epsilon,
        "decimal_digits": fmt.decimal_digits,
        "round_trip_digits": fmt.round_trip_digits,
        "largest_counting_integer": fmt.largest_counting_integer,
        "has_zero": fmt.has_zero,
        "has_infinity": fmt.has_infinity,
        "nan": fmt.nan,
        "cast_saturates": fmt.cast_saturates,
        "cast_note": fmt.cast_note,
    }


def _integer(fmt: IntegerFormat) -> dict[str, Any]:
    return {
        "family": "integer",
        "bits": fmt.bits,
        "sign_bits": 1,
        "layout": f"s {'i' * (fmt.bits - 1)}",
        "bytes_per_element": fmt.bytes_per_element,
        "max": fmt.max,
        "min": fmt.min,
        "step": fmt.step,
        "is_symmetric": fmt.is_symmetric,
        "has_zero": True,
        "has_infinity": False,
        "nan": "none",
        "cast_note": fmt.cast_note,
    }


def _block(fmt: BlockFormat) -> dict[str, Any]:
    element = describe(fmt.element)
    return {
        "family": "block",
        "element": fmt.element.name,
        "scale": fmt.scale.name,
        "block_size": fmt.block_size,
        "tensor_scale": None if fmt.tensor_scale is None else fmt.tensor_scale.name,
        "bits": fmt.element.bits,
        "bits_per_element": float(fmt.bits_per_element),
        "bytes_per_element": fmt.bytes_per_element,
        "layout": element["layout"],
        "scale_layout": describe(fmt.scale)["layout"],
        "max": fmt.max,
        "element_max": element["max"],
        "smallest": fmt.smallest,
    }
