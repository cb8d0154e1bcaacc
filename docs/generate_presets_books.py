"""Run a step of every preset that fits, and write docs/presets-books.csv and docs/presets-books.md (`make presets`).

    generate_presets_books.py [--memory 6GB] [PRESET ...]

Each run is a process of its own, one after another, and its row is written at once. Presets that have a row already are
not run again, unless they are named.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "agree"))

import torch  # noqa: E402  # the path comes first
from preset_books import (  # noqa: E402  # as above
    LENGTH,
    Run,
    books,
    fewest_layers,
    presets,
    recipe,
    rows,
    runs,
    write,
)

from torchledger import spec as specs  # noqa: E402  # as above
from torchledger.formula import count, memory, num_parameters  # noqa: E402  # as above
from torchledger.units import parse_bytes  # noqa: E402  # as above

TARGET = Path(__file__).with_name("presets-books.md")


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", default="6GB", type=parse_bytes, help="the most that a run may take")
    parser.add_argument("--one", nargs=3, metavar=("PRESET", "LAYERS", "WAY"), help=argparse.SUPPRESS)
    parser.add_argument("--page", action="store_true", help="only write the page anew, from the table")
    parser.add_argument("presets", nargs="*")
    asked = parser.parse_args()
    if asked.one:
        name, layers, way = asked.one
        torch.set_num_threads(1)  # how many there are changes what kernels hold, and the machine may be another's too
        print(*(f"{key}={value}" for key, value in books(Run(name, int(layers), way)).items()), sep="\n")
        return
    known = {key: entry | _by_formula(entry) for key, entry in rows().items()}
    ran = {preset for preset, _ in known}
    for name in () if asked.page else asked.presets or [each for each in presets() if each not in ran]:
        for run in runs(name, asked.memory):
            known |= _row(run)
            _write(known)
    _write(known)


def _by_formula(entry: dict[str, str]) -> dict[str, str]:
    """What the formulas say of a run today: they cost nothing, and what was measured stays what it was."""
    run = Run(entry["preset"], int(entry["layers"]), entry["recipe"])
    flops, peak_bytes = count(run.spec, run.recipe).flops, memory(run.spec, run.recipe).peak_bytes
    return {"formula_flops": str(flops), "formula_tensor_bytes": str(peak_bytes)}


def _row(run: Run) -> dict[tuple[str, str], dict[str, str]]:
    """The row of a run, from a process of its own, whose memory is its own too; nothing where it died."""
    command = (sys.executable, __file__, "--one", run.preset, str(run.num_layers), run.way)
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603  # ourselves
    if done.returncode != 0:
        print(f"{run}: exit code {done.returncode}\n{done.stderr[-2000:]}", file=sys.stderr, flush=True)
        return {}
    entry = dict(line.split("=", 1) for line in done.stdout.splitlines())
    print(*entry.values(), flush=True)
    return {(entry["preset"], entry["recipe"]): entry}


HEAD = f"""# The books of the presets

One training step of every preset, counted three ways: by the formula, by a trace on no memory, and by running it: two
steps, one sequence of {LENGTH} drawn token ids, on a CPU with one thread; attention fused in FP32, with scores in
memory otherwise. FLOPs are those of matmuls and attention, 2 a multiply-add. Peaks are bytes alive at once, from the
making of the model to the end of its second step: of tensors as the formula has them, as traced, and as the recorder
saw them on real tensors; then with what kernels hold inside, as predicted (trace and probed kernels) and as the
allocator's own events say.

What would need more memory with AdamW in FP32 is run with plain SGD on BF16 parameters; where that is too much as well,
with as many layers as it takes for every kind to occur, and one more where it fits: widths, heads, experts and
vocabulary are the preset's. Written by `make presets` from `docs/presets-books.csv`.
"""
UNRUN = """Formula and trace of these agree too (`tests/agree/test_presets.py`). Their bytes are those of the fewest
layers in which every kind occurs, with plain SGD on BF16 parameters; `make presets` runs what fits into the memory that
it is given, and goes on with what the table has no row for."""
COLUMNS = (
    "preset", "layers", "recipe", "FLOPs", "formula, trace, run", "tensor peak, formula", "traced", "run",
    "whole peak, predicted", "measured", "difference",
)  # fmt: skip


def page(entries: dict[tuple[str, str], dict[str, str]]) -> str:
    """The page, from the rows of the table."""
    ordered = [entry for name in presets() for (preset, _), entry in entries.items() if preset == name]
    parts = [HEAD, _summary(ordered), f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    parts += [_line(entry) for entry in ordered]
    left = [name for name in presets() if name not in {entry["preset"] for entry in ordered}]
    if left:
        parts += [
            "",
            "## Not run yet",
            "",
            UNRUN,
            "",
            "| preset | parameters | fewest layers | bytes | with AdamW, whole |",
        ]
        parts += ["|---|---|---|---|---|", *map(_unrun, left)]
    return "\n".join(parts) + "\n"


def _summary(entries: list[dict[str, str]]) -> str:
    flops = sum(len({entry[f"{way}_flops"] for way in ("formula", "traced", "measured")}) == 1 for entry in entries)
    tensors = sum(entry["traced_tensor_bytes"] == entry["measured_tensor_bytes"] for entry in entries)
    whole = sum(entry["predicted_peak_bytes"] == entry["measured_peak_bytes"] for entry in entries)
    formula = sum(entry["formula_tensor_bytes"] == entry["traced_tensor_bytes"] for entry in entries)
    num_presets = len({entry["preset"] for entry in entries})
    return (
        f"{len(entries)} runs of {num_presets} presets. FLOPs are equal all three ways in {flops}; the traced peak of "
        f"tensors is that of the run to the byte in {tensors}, the predicted whole peak that of the allocator in "
        f"{whole}; the formula's fullest moment is the traced peak in {formula}.\n"
    )


def _line(entry: dict[str, str]) -> str:
    number = {name: int(value) for name, value in entry.items() if name.endswith(("_flops", "_bytes"))}
    flops = [number[f"{way}_flops"] for way in ("formula", "traced", "measured")]
    layers = entry["layers"] if entry["layers"] == entry["of_layers"] else f"{entry['layers']} of {entry['of_layers']}"
    gap = number["measured_peak_bytes"] - number["predicted_peak_bytes"]
    cells = (
        entry["preset"], layers, entry["recipe"], f"{flops[0]:,}",
        "equal" if len(set(flops)) == 1 else " / ".join(f"{each:,}" for each in flops),
        *(f"{number[f'{way}_tensor_bytes']:,}" for way in ("formula", "traced", "measured")),
        f"{number['predicted_peak_bytes']:,}", f"{number['measured_peak_bytes']:,}", f"{gap:+,}" if gap else "0",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _unrun(name: str) -> str:
    spec = specs.load(name)
    fewest = fewest_layers(spec)
    least = memory(replace(spec, num_layers=fewest), recipe("sgd bf16-pure")).peak_bytes
    whole = memory(spec, recipe("adamw fp32")).peak_bytes
    return f"| {name} | {num_parameters(spec):,} | {fewest} of {spec.num_layers} | {least:,} | {whole:,} |"


def _write(entries: dict[tuple[str, str], dict[str, str]]) -> None:
    write(entries)
    TARGET.write_text(page(entries), encoding="utf-8")


if __name__ == "__main__":
    main()
