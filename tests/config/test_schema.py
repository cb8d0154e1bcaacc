import json

import pytest

from torchledger import config
from torchledger.config import describe_fields, schema


def test_the_schema_says_what_the_reader_takes(run_class):
    """Types, choices, amounts, lists, tables and defaults are what `load` accepts."""
    found = schema(run_class)
    properties = found["properties"]
    assert found["additionalProperties"] is False
    assert properties["extends"]["type"] == "string"
    assert properties["name"] == {"type": "string", "default": "run"}
    assert properties["tokens"]["anyOf"][0] == {"type": "integer", "minimum": 0}
    assert properties["colour"] == {"enum": ["red", "blue"], "default": "red"}
    assert properties["data"] == {"type": "string", "default": "data"}
    assert properties["note"] == {"anyOf": [{"type": "string"}, {"const": "none"}]}
    assert properties["micro_batch"]["anyOf"] == [{"type": "integer"}, {"enum": ["auto"]}]
    assert properties["tags"] == {"type": "array", "items": {"type": "string"}, "default": []}
    assert properties["scaling"]["additionalProperties"] == {"anyOf": [{"type": "number"}, {"type": "string"}]}
    assert properties["model"] == {"$ref": "#/$defs/Model"}
    assert properties["optimizer"]["default"]["learning_rate"] == 1e-3
    assert properties["anything"] == {"default": 0}
    assert set(found["$defs"]) == {"Model", "Optimizer", "Layer"}
    assert found["$defs"]["Optimizer"]["properties"]["betas"] == {
        "type": "array",
        "prefixItems": [{"type": "number"}, {"type": "number"}],
        "minItems": 2,
        "maxItems": 2,
        "default": [0.9, 0.95],
    }


def test_the_schema_is_json(run_class):
    """It is plain data, ready to be saved for an editor."""
    assert json.loads(json.dumps(schema(run_class))) == schema(run_class)


def test_descriptions_come_from_docstrings(run_class):
    """The Attributes section describes the properties, several names in one entry included."""
    properties = schema(run_class)["$defs"]["Optimizer"]["properties"]
    assert properties["kind"]["description"] == "its name."
    assert properties["decay"]["description"] == properties["learning_rate"]["description"] == "rates, both per step."
    assert "description" not in properties["clip"]
    assert describe_fields(run_class) == {}


def test_every_name_in_the_schema_reads(run_class):
    """The defaults that the schema shows are themselves a valid configuration."""
    defaults = {name: entry["default"] for name, entry in schema(run_class)["properties"].items() if "default" in entry}
    loaded = config.load(None, run_class, table=defaults | {"model": {"hidden_size": 8}})
    assert loaded.value == config.load(None, run_class, table={"model": {"hidden_size": 8}}).value


def test_an_impossible_field_is_our_mistake():
    """A type that no file can hold fails when the schema is made."""
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Odd:
        x: complex = 0j

    with pytest.raises(TypeError, match="cannot hold"):
        schema(Odd)
