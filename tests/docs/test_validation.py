"""What the validation page claims is what the tests say."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def generator():
    spec = importlib.util.spec_from_file_location("generate_validation", DOCS / "generate_validation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current():
    """docs/validation.md is what `make docs` would write now."""
    assert (DOCS / "validation.md").read_text(encoding="utf-8") == generator().page(), "run `make docs`"


def test_every_proof_is_on_the_page():
    """Each test file of agreement and of published figures has its section."""
    text = (DOCS / "validation.md").read_text(encoding="utf-8")
    for folder in ("agree", "published"):
        for path in (DOCS.parent / "tests" / folder).glob("test_*.py"):
            assert f"### `tests/{folder}/{path.name}`" in text
