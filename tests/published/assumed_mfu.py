"""The MFU that the napkin assumes, from published runs: writes src/torchledger/planner/data/mfu.toml.

    python tests/published/assumed_mfu.py > src/torchledger/planner/data/mfu.toml

The rows are those of `throughput/`.

The convention, stated in the file too: 6·parameters·tokens/s over the dense peak of the format of the matmuls (MXFP8
has FP8's peak, NVFP4 has FP4's; FP16 and BF16 have one peak and count as one format), for rows of quality A, dense
models of at least 1B parameters trained whole on at least 8 chips. Every row counts once; a chip and format need 4.
"""

import csv
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path

from torchledger import machine

FEWEST_ROWS = 4
PEAK = {"bf16": "bf16", "fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}
HEAD = """\
# The MFU that the napkin assumes where none is given. Facts with sources, so they stand here and not in the code.
# Made by tests/published/assumed_mfu.py: 6·parameters·tokens/s over the dense peak of the format of the matmuls (FP16
# counts as BF16, whose peak it has), in published runs of dense models of at least 1B parameters, trained whole on at
# least 8 chips. Every run counts once. `low` and `high` are the middle half. [format.*] is for chips without a row of
# their own, [all] for formats without one.
"""


def number_format(precision: str) -> str | None:
    """The format of the matmuls from how a source writes its precision."""
    text = precision.lower()
    words = {"nvfp4": "nvfp4", "mx": "mxfp8", "fp8": "fp8", "float8": "fp8", "bf16": "bf16", "fp16": "bf16"}
    return next((name for word, name in words.items() if word in text), None)


def rows():
    """(chip, format, MFU, source) of every row that counts."""
    for path in sorted((Path(__file__).parent / "throughput").glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            yield from filter(None, map(measured, csv.DictReader(file)))


def measured(row):
    """What a row counts as; nothing where it is no whole training of a large dense model."""
    form = number_format(row["precision"])
    told = f"{row['model']} {row.get('notes') or ''}".lower()
    is_part = any(word in told for word in ("lora", "sft", "proxy"))
    if row.get("quality") != "A" or row.get("moe_experts") or is_part or form is None:
        return None
    params, rate, chips = (float(row.get(key) or 0) for key in ("params", "tokens_per_s_per_gpu", "n_gpus"))
    if params < 1e9 or rate == 0 or chips < 8:
        return None
    chip = machine.get(row["gpu"])
    return chip.key, form, 6 * params * rate / chip.peak(PEAK[form]), source(row["source_id"])


def source(name: str) -> str:
    """A source without its edition: pages of the same benchmark are one."""
    for family in ("megatron-bridge", "nvidia dgxc-benchmarking", "MLPerf Training"):
        if name.startswith(family):
            return family
    return name.partition(" (")[0]


def table(title: str, found: list[tuple[float, str]]) -> str:
    """One table of the file."""
    low, middle, high = statistics.quantiles([mfu for mfu, _ in found], n=4)
    names = ", ".join(f"{name} ({number})" for name, number in Counter(name for _, name in found).most_common())
    return (
        f"\n[{title}]\nmfu = {middle:.2f}\nlow = {low:.2f}\nhigh = {high:.2f}\nnum_runs = {len(found)}\n"
        f'source = "{names}"\ndate = "2026-11-30"\n'
    )


def toml() -> str:
    """The whole file."""
    groups = defaultdict(list)
    for chip, form, mfu, name in rows():
        for title in ("all", f"format.{form}", f"chip.{chip}.{form}"):
            groups[title].append((mfu, name))
    kept = {title: found for title, found in groups.items() if len(found) >= FEWEST_ROWS}
    return HEAD + "".join(table(title, kept[title]) for title in sorted(kept))


if __name__ == "__main__":
    sys.stdout.write(toml())
