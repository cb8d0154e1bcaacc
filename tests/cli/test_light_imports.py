"""What the command line may load. Whoever adds to a list here makes every start slower."""

import json
import subprocess
import sys

import pytest

#: Every module of ours that `torchledger --help` loads.
HELP_MAY_LOAD = {
    "torchledger",
    "torchledger.cli",
    "torchledger.cli.main",
    "torchledger.cli.documented",
    "torchledger.cli.failure",
    "torchledger.cli.lazy",
}

#: What no answer by arithmetic may load, in a pipe.
HEAVY = {"torch", "numpy", "rich", "sympy", "psutil", "tokenizers", "asyncio", "multiprocessing"}


def loaded(*words):
    """Modules that are loaded once the command has answered."""
    code = (
        "import json, sys; from torchledger.cli.main import main; code = main(sys.argv[1:]);"
        "print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return set(modules)


def test_help_loads_click_and_nothing_else():
    """`--help` loads the listed modules of ours and click; neither torch nor numpy nor rich nor any room."""
    modules = loaded("--help")
    assert {name for name in modules if name.startswith("torchledger")} == HELP_MAY_LOAD
    assert not HEAVY & modules
    third_party = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    assert {name for name in third_party if not name.startswith(("_", "torchledger"))} == {"click"}


@pytest.mark.parametrize(
    "words",
    [
        ("count", "llama-3-8b"),
        ("count", "gpt2", "--by", "parameter", "--json"),
        ("plan", "--params", "70B", "--tokens", "15T", "--on", "h100x1024", "--mfu", "0.5"),
        ("plan", "--solve", "params", "--on", "h100x8"),
        ("plan", "llama-3-8b", "--on", "h100x8", "--zero", "3", "--recompute", "full", "--tokens", "15B"),
        ("plan", "gpt2", "--on", "h100", "--batch", "8"),
        ("format", "1e-8"),
        ("explain", "einsum", "ij,jk,kl->il", "i=8", "j=8", "k=8", "l=8", "--on", "h100"),
        ("explain", "rearrange", "b s d -> b d s", "b=2", "s=3", "d=4", "--json"),
        ("machines", "h100"),
        ("models", "llama"),
        ("config", "schema", "run"),
    ],
)
def test_arithmetic_loads_nothing_heavy(words):
    """What needs no torch does not load it, nor anything else that takes its time."""
    assert not HEAVY & loaded(*words)
