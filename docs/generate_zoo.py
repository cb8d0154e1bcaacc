"""Trace every model of the zoo and write docs/zoo.csv and docs/zoo.md (`make zoo`, some minutes; needs transformers).

With names of models behind it, only theirs are traced anew; the other rows stay. `--tiny` leaves out published sizes.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "agree"))

from zoo.families import ZOO  # noqa: E402  # the path comes first
from zoo.row import row, rows, traced, write  # noqa: E402  # as above

TARGET = Path(__file__).with_name("zoo.md")
HEAD = """# The zoo

Architectures of transformers, built from configurations on no weights, each traced for a full training step (forward,
loss, backward, AdamW) on the CPU target: with tiny sizes in `make test`, with published sizes in `make proof`. There a
model must be complete (no operation without a price), have its own number of parameters, and matmul FLOPs equal to
those derived from the calls of its own code (`tests/agree/zoo/derivation.py`). A size is named as its publisher names
it and has its configuration; `defaults of transformers` is what the class builds when it is not told. FLOPs are those
of matmuls, attention and convolutions, 2 a multiply-add, attention in full. Peak: tensor bytes of two steps in fp32
with AdamW, batch 1 of up to 2,048 tokens (published) and 2 of 16 (tiny). Written by `make zoo`; `docs/zoo.csv` holds
the same rows.
"""
COLUMNS = (
    "model",
    "class",
    "size",
    "parameters",
    "forward FLOPs",
    "backward FLOPs",
    "attention kernel",
    "peak bytes",
    "complete",
)


def page() -> str:
    """The page, from docs/zoo.csv."""
    entries = list(rows().values())
    parts = [HEAD]
    for family in dict.fromkeys(entry["family"] for entry in entries):
        parts += [f"## {family.capitalize()}\n", f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
        for entry in entries:
            if entry["family"] == family:
                parts.append(_line(entry))
        parts.append("")
    return "\n".join(parts)


def _line(entry: dict[str, str]) -> str:
    numbers = ("num_parameters", "forward_flops", "backward_flops")
    figures = " | ".join(f"{int(entry[name]):,}" for name in numbers)
    cells = (
        entry["model"], f"`{entry['class']}`", entry["size"], figures, entry["attention"],
        f"{int(entry['peak_tensor_bytes']):,}", entry["complete"],
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Trace and write."""
    names = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    sizes = ("tiny",) if "--tiny" in sys.argv else ("tiny", "published")
    known = rows()
    order = [(z.name, s) for z in ZOO for s in ("tiny", z.size_name)]
    for zoo_model in ZOO:
        for size in sizes:
            if not names or zoo_model.name in names:
                entry = row(zoo_model, size, traced(zoo_model, zoo_model.build(size), zoo_model.example(size)))
                known[entry["model"], entry["size"]] = entry
                print(*entry.values(), flush=True)
                write({key: known[key] for key in order if key in known})
    TARGET.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
