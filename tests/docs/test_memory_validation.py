"""The page of predicted and measured bytes says what the rows and the planner say."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def generator():
    spec = importlib.util.spec_from_file_location("generate_memory_validation", DOCS / "generate_memory_validation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current():
    """docs/validation-memory.md is what `make docs` writes of the rows and the planner as they are."""
    module = generator()
    assert module.TARGET.read_text(encoding="utf-8") == module.page()


def test_the_odd_row_is_argued_from_the_printed_figures():
    """56 GB with micro-batches of 4, steps of 11 and more on the same ranks: at most 56.5 - 10 = 46.5 of the 65."""
    module = generator()
    text = module.odd(module.found("BLOOM"))
    assert "- BLOOM-candidate 194B: 45 and 56" in text
    assert "at most 46.5 GB" in text
    assert f"{46.5 / 64.5 - 1:+.0%}" == "-28%"
    assert "-28%" in text
