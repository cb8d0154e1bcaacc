"""The rules of the house that a machine can hold: sizes of files and functions, names, no leftovers."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
OURS = sorted(
    [*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").glob("*.py"), *(ROOT / "docs").glob("*.py")]
)
LONGEST_FILE = 400
LONGEST_FUNCTION = 60


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_holds_one_idea_and_at_most_400_lines(path):
    """A file is at most 400 lines, so that it can hold only one idea."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_function_is_at_most_60_lines(path):
    """A function, its docstring included, is at most 60 lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    too_long = {node.name: node.end_lineno - node.lineno + 1 for node in functions}
    assert {name: lines for name, lines in too_long.items() if lines > LONGEST_FUNCTION} == {}


def test_no_drawer_modules():
    """No module is a drawer: utils, common, helpers, base and manager name no idea."""
    drawers = {"utils", "common", "helpers", "helper", "base", "manager", "misc"}
    assert [path for path in SOURCES if path.stem in drawers] == []


def test_every_module_says_what_it_is_for():
    """Every module opens with a docstring."""
    assert [p for p in SOURCES if ast.get_docstring(ast.parse(p.read_text(encoding="utf-8"))) is None] == []


def test_no_leftovers():
    """Nothing unfinished is committed."""
    leftover = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b|Not" + r"ImplementedError")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in OURS
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if leftover.search(text)
    ]
    assert found == []


def test_every_test_file_mirrors_a_source_file_or_names_its_kind():
    """tests/<room>/test_<file>.py stands beside src/torchledger/<room>/<file>.py, or in a special folder."""
    special = {"agree", "published", "device", "docs"}
    stray = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        room, *rest = path.relative_to(ROOT / "tests").parts
        if not rest or room in special:
            continue
        if not (ROOT / "src" / "torchledger" / room).is_dir():
            stray.append(path)
    assert stray == []
