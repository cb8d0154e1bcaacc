import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from torchledger.config.lines import line_numbers

TEXT = '''# a comment with = and [brackets]
title = "a [b] = 'c' # no comment"

[model]   # header
sizes = [
  1,  # one ]
  2,
]
long = """
[not.a.header]
key = 1 \\"""
"quoted" """"
raw = \'\'\'
x = 1\'\'\'
inline = {a = 1, b = "}"}
"odd key".'and = more' = 1

[[model.layers]]
size = 1
[[model.layers]]
size = 2
[model.layers.norm]
kind = "rms"
'''


def test_every_key_has_its_line():
    """Comments, texts over several lines, arrays and inline tables do not mislead the walk."""
    lines = dict(enumerate(TEXT.split("\n"), 1))
    found = line_numbers(TEXT)
    assert {path: lines[number].split("=")[0].strip() for path, number in found.items()} == {
        ("title",): "title",
        ("model",): "[model]   # header",
        ("model", "sizes"): "sizes",
        ("model", "long"): "long",
        ("model", "raw"): "raw",
        ("model", "inline"): "inline",
        ("model", "odd key", "and = more"): '"odd key".\'and',
        ("model", "layers", 0): "[[model.layers]]",
        ("model", "layers", 0, "size"): "size",
        ("model", "layers", 1): "[[model.layers]]",
        ("model", "layers", 1, "size"): "size",
        ("model", "layers", 1, "norm"): "[model.layers.norm]",
        ("model", "layers", 1, "norm", "kind"): "kind",
    }
    assert lines[found[("model", "layers", 1, "size")]] == "size = 2"


SCALAR = st.integers(-(10**9), 10**9) | st.booleans() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TABLES = st.recursive(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=4), SCALAR | st.lists(SCALAR, max_size=3)
    ),
    lambda inner: st.dictionaries(st.text("ab.=[]\"'#\n", max_size=4), inner | SCALAR, max_size=4),
    max_leaves=8,
)


@given(TABLES, st.booleans())
def test_every_key_of_any_table_is_found(table: dict, multiline: bool):
    """Whatever TOML is written, every key that is no table has exactly one line, and lines rise."""

    def keys(part: dict, place=()):
        for key, value in part.items():
            if isinstance(value, dict):
                yield from keys(value, (*place, key))
            else:
                yield (*place, key)

    found = line_numbers(tomli_w.dumps(table, multiline_strings=multiline))
    assert set(keys(table)) <= set(found)
    assert list(found.values()) == sorted(set(found.values()))


def test_a_file_without_keys():
    """Nothing has no lines."""
    assert line_numbers("") == {}
    assert line_numbers("# only a comment") == {}
