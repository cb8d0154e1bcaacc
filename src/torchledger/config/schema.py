"""A JSON Schema of a configuration, from its dataclasses: editors complete and check TOML files with it."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from torchledger.config.structure import NONE, default_of, field_types, settable_fields
from torchledger.config.wording import amount_of, bare, choices, members
from torchledger.config.write import plain

_SCALARS: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    Path: {"type": "string"},
    type(None): {"const": NONE},
    Any: {},
}
_ATTRIBUTES = re.compile(r"^Attributes:\n((?:[ \t]+.*\n?|\n)+)", re.MULTILINE)
_ENTRY = re.compile(r"^    ([a-z_0-9]+(?:, [a-z_0-9]+)*): (.*(?:\n {5,}.*)*)", re.MULTILINE)


def schema(cls: type) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the files that `load(..., cls)` reads.

    Descriptions come from the "Attributes:" section of each class's docstring. No field is marked as required, because
    the file that this one extends may have it.

    Raises:
        TypeError: our mistake: a field has a type that no configuration can hold.
    """
    definitions: dict[str, dict[str, Any]] = {}
    root = _dataclass(cls, definitions)
    root["properties"] = {"extends": {"type": "string", "description": "a TOML file to start from"}} | root[
        "properties"
    ]
    definitions.pop(cls.__name__, None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": cls.__name__, **root} | (
        {"$defs": definitions} if definitions else {}
    )


def describe_fields(cls: type) -> dict[str, str]:
    """What the "Attributes:" section of a class's docstring says of each field.

    >>> class Box:
    ...     '''A box.
    ...
    ...     Attributes:
    ...         width, height: its size
    ...             in metres.
    ...     '''
    >>> describe_fields(Box)
    {'width': 'its size in metres.', 'height': 'its size in metres.'}
    """
    import inspect  # dataclasses has loaded it already

    section = _ATTRIBUTES.search((inspect.getdoc(cls) or "") + "\n")
    found: dict[str, str] = {}
    for names, text in _ENTRY.findall(section[1]) if section else []:
        found |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return found


def _dataclass(cls: type, definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
    definitions[cls.__name__] = {}  # before its fields, which may mention it
    described, types = describe_fields(cls), field_types(cls)
    properties: dict[str, Any] = {}
    for field in settable_fields(cls):
        entry = _type(types[field.name], definitions)
        if field.name in described:
            entry["description"] = described[field.name]
        default = default_of(field)
        if default is not MISSING and default is not None:
            entry["default"] = plain(default)
        properties[field.name] = entry
    definitions[cls.__name__] = {"type": "object", "additionalProperties": False, "properties": properties}
    return definitions[cls.__name__]


def _type(kind: Any, definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
    amount = amount_of(kind)
    if amount is not None:
        number = {"type": "integer" if bare(kind) is int else "number", "minimum": 0}
        return {"anyOf": [number, {"type": "string", "description": amount.quantity.accepts}]}
    alternatives = members(kind)
    if len(alternatives) > 1:
        return {"anyOf": [_type(member, definitions) for member in alternatives]}
    kind = bare(kind)
    if choices(kind):
        return {"enum": list(choices(kind))}
    if is_dataclass(kind) and isinstance(kind, type):
        if kind.__name__ not in definitions:
            _dataclass(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    origin, items = get_origin(kind) or kind, get_args(kind)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _type(items[1], definitions) if items else {}}
    if origin is tuple and items and items[-1] is not Ellipsis:
        fixed = [_type(item, definitions) for item in items]
        return {"type": "array", "prefixItems": fixed, "minItems": len(fixed), "maxItems": len(fixed)}
    if origin in {tuple, list}:
        return {"type": "array", "items": _type(items[0], definitions) if items else {}}
    if kind not in _SCALARS:
        raise TypeError(f"a configuration cannot hold a field of type {kind}")
    return dict(_SCALARS[kind])
