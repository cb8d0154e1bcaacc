"""Write docs/validation.md from the tests themselves, so that it claims no more than they hold (`make docs`)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = Path(__file__).with_name("validation.md")
FOLDERS = {
    "agree": "The same number, got in different ways",
    "published": "Figures of papers and published models",
    "device": "On an accelerator",
}

HEAD = """# What is proved, and where

Generated from the tests' own sentences by `make docs`; a test holds it to be current. Each claim is what its test
asserts, no more. Numbers are equal to the last one unless a tolerance is named. `make test` runs all of it but what is
marked as slow, which `make proof` runs.

What these tests do **not** show: how near predicted seconds come to measured ones, which no test can hold on a machine
that it shares. The closing table of every run shows it for that run, and [validation-time.md](validation-time.md) for
1,500 steps that others measured and published, by source.

## By question

| question | ways that agree | held by |
|---|---|---|
"""

#: Question, the ways that agree on its answer, the files of tests/ that hold them to it.
QUESTIONS = (
    (
        "parameters",
        "formula, our module, transformers, sizes by hand",
        ("agree/test_parameters", "published/test_parameters"),
    ),
    ("FLOPs of products and attention, per phase", "formula, trace, PyTorch's own counter", ("agree/test_flops",)),
    ("the same for models nobody thought of", "formula, trace", ("agree/test_drawn_models",)),
    ("the lecture's linear nets", "arithmetic, trace, PyTorch's own counter", ("agree/test_lecture_nets",)),
    (
        "bytes of kept activations, parameters, buffers, optimizer state",
        "formula, trace",
        ("agree/test_drawn_models",),
    ),
    ("every storage, its birth and its death", "fake tensors, real tensors", ("agree/test_tensor_bytes",)),
    (
        "peak of the CPU's allocator",
        "trace and probed scratch, the allocator's own events",
        ("agree/test_allocator_bytes",),
    ),
    ("number formats: every pattern, every rounding", "ours, PyTorch's casts", ("formats/test_encode",)),
    ("the napkin: 144 days, 40B", "arithmetic by hand", ("planner/test_napkin", "planner/test_holding")),
    (
        "training FLOPs of whole runs",
        "formulas, 264 totals that others printed or worked out",
        ("published/test_total_flops", "published/test_flops_per_token"),
    ),
    ("compute-optimal models", "laws as data, tables 3 and A3 of Chinchilla's paper", ("planner/test_budget",)),
    ("which convention a printed MFU was", "audit, claims of four sources", ("planner/test_claim",)),
    ("what a run loses to failures", "Daly's equations, his examples, a run drawn at random", ("planner/test_losses",)),
    (
        "accelerators: every spelling resolves, every row has its source",
        "catalog, the names in published tables",
        ("machine/test_data",),
    ),
    (
        "a run killed and resumed, and one run twice",
        "bits of losses, weights and texts",
        ("trainer/test_loop", "trainer/test_checkpoint"),
    ),
    ("planning loads no torch", "what a process imported", ("cli/test_light_imports",)),
    ("what these pages show", "what the commands print", ("docs/test_examples", "docs/test_cli_documented")),
)


def page() -> str:
    """The whole page."""
    rows = (
        f"| {question} | {ways} | {', '.join(f'`tests/{name}.py`' for name in files)} |"
        for question, ways, files in QUESTIONS
    )
    return "\n".join([HEAD + "\n".join(rows) + "\n", *_sections()])


def _sections() -> Iterator[str]:
    for folder, title in FOLDERS.items():
        files = sorted((ROOT / "tests" / folder).glob("test_*.py"))
        if files:
            yield f"## {title}\n"
        for file in files:
            tree = ast.parse(file.read_text(encoding="utf-8"))
            yield f"### `{file.relative_to(ROOT).as_posix()}`\n\n{_told(tree) or ''}\n"
            yield "\n".join(_claims(tree)) + "\n"


def _claims(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            slow = " (slow)" if any(ast.unparse(each) == "pytest.mark.proof" for each in node.decorator_list) else ""
            name = node.name.removeprefix("test_").replace("_", " ")
            yield f"- {_told(node) or f'{name[0].upper()}{name[1:]}.'} `{node.name}`{slow}"


def _told(node: ast.Module | ast.FunctionDef) -> str | None:
    """The docstring as one paragraph."""
    text = ast.get_docstring(node)
    return None if text is None else " ".join(text.split())


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {TARGET}\n")
