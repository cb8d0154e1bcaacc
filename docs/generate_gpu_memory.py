"""Write docs/gpu-memory.md from the recorded runs and what is predicted of them (`make docs`).

The predictions stand in tests/published/recorded_memory.csv, where `make proof` holds them to what the tracer says.
"""

from __future__ import annotations

import csv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = Path(__file__).with_name("gpu-memory.md")
ROWS = ROOT / "tests" / "published" / "recorded_memory.csv"

HEAD = """# GPU memory, predicted and recorded

Runs that others recorded on GPUs, predicted from their configuration alone: `trace_step(..., target="cuda")` on no
memory, then `reserve` (the caching allocator as a model). Nothing was fitted. All amounts are those of
`torch.cuda.memory_stats` in MiB; *allocated* is what tensors hold with the allocator's rounding, *reserved* what the
process took from the GPU through it. What `nvidia-smi` shows is more: the CUDA context and loaded kernels beside it
(0.71 to 1.42 GiB where they were measured, see `torchledger.memory.cuda_context`).

The runs: a model of 423,183,360 parameters (24 layers of width 1,024, attention with its scores in memory), batch 4,
kind and sequence length as named; AdamW operation by operation; five steps to warm up, then the recorded one.
Recorded by [Wedsonlin/assignment2-systems](https://github.com/Wedsonlin/assignment2-systems) with PyTorch 2.11.

"""

TAIL = """
Of the runs at 128 (FP32 training) and 256 (inference) every allocation and every free of the recorded step is in the
trace, in its size and order, but for 13 events of at most 4 KiB in the kernel that sums the rows of the table.

Six recorded snapshots, replayed on the allocator's model: 22,191 of 22,191 allocations at their recorded address, 796
of 796 new segments in their size. `torchledger count --snapshot FILE` does this for yours.

What stays open is the driver's: of equally large free blocks the allocator takes the one at the lowest address, and
which addresses `cudaMalloc` gives is not known beforehand. `reserve(..., seed=...)` draws other orders. Over nine of
them the reserved MiB are 6,900 to 6,940 (FP32, 128), 8,756 to 8,836 (256), 12,010 to 12,074 (BF16, 512) and 24,012
(1,024); each recorded figure is among them.
"""


def page() -> str:
    """The whole page."""
    rows = csv.DictReader(ROWS.read_text(encoding="utf-8").splitlines())
    lines = ["| run | metric | recorded | predicted | error |", "|---|---|---:|---:|---:|"]
    for row in rows:
        recorded, found = float(row["mebibytes"]), float(row["predicted"])
        error = f"{100 * (found / recorded - 1):+.3f} %"
        digits = len(row["mebibytes"].partition(".")[2])
        lines.append(f"| {row['run']} | {row['metric']} | {recorded:,.{digits}f} | {found:,.3f} | {error} |")
    return HEAD + "\n".join(lines) + "\n" + TAIL


def main() -> None:
    """Write the page."""
    TARGET.write_text(page(), encoding="utf-8")
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
