"""The page of recorded and predicted GPU memory says what the file of the tests says."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def generator():
    spec = importlib.util.spec_from_file_location("generate_gpu_memory", DOCS / "generate_gpu_memory.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current():
    """docs/gpu-memory.md is what `make docs` would write now."""
    assert (DOCS / "gpu-memory.md").read_text(encoding="utf-8") == generator().page(), "run `make docs`"
