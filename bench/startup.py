"""Seconds from the shell to the answer: the commands that need no torch, against importing torch alone. Ratios.

Modules are compiled in the first round and read from then on, as they are where a package is used more than once: also
where `PYTHONDONTWRITEBYTECODE` would have them compiled at every start, which takes as long again.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

RUNS = 7
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "torchledger --help": ["-m", "torchledger", "--help"],
    "torchledger plan": ["-m", "torchledger", "plan", "--params=70B", "--tokens=15T", "--on=h100x1024", "--mfu=0.5"],
    "torchledger plan MODEL": [
        *("-m", "torchledger", "plan", "llama-3.1-405b", "--on=h100x16384", "--tp=8", "--pp=16", "--cp=2", "--zero=1"),
        *("--sequence-parallel", "--batch=2048", "--tokens=15T"),
    ],
    "torchledger count llama-3-8b": ["-m", "torchledger", "count", "llama-3-8b"],
    "import torch": ["-c", "import torch"],
}


def seconds(arguments: list[str], compiled: str) -> float:
    """Wall time of one fresh process, which keeps compiled modules in a folder."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, env=variables | {"PYTHONPYCACHEPREFIX": compiled}
    )
    return time.perf_counter() - start


def main() -> None:
    """Alternate the commands, print medians and their ratio to `import torch`."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as compiled:
        for number in range(RUNS + 1):
            for name, arguments in COMMANDS.items():
                took = seconds(arguments, compiled)
                if number:  # the first round compiles modules and warms the disk cache
                    times[name].append(took)
    torch_s = statistics.median(times["import torch"])
    print(f"{'command':32}{'median s':>10}{'min s':>10}{'of import torch':>18}")
    for name, took in times.items():
        median = statistics.median(took)
        print(f"{name:32}{median:10.3f}{min(took):10.3f}{median / torch_s:18.3f}")


if __name__ == "__main__":
    main()
