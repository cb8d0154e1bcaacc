"""The command line: a group that imports a command only when it is called, and what becomes of an error.

`torchledger --help` therefore loads click and nothing else; `plan` never loads torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from torchledger.cli.failure import report_failure
from torchledger.cli.lazy import LazyCommands

#: Every command with what it answers; the module of the same name under `torchledger.cli` has the function `command`.
COMMANDS: dict[str, str] = {
    "count": "Parameters, FLOPs and bytes of a training step of a model, and where they go.",
    "plan": "Days, chips, MFU, parameters, tokens or money of a training run: any one of them from the others.",
    "calibrate": "Fit the planner's constants to measured steps of your own cluster.",
    "prepare": "Make token files from a folder or a file: text, JSON lines, Parquet, Arrow, gzip, zstd.",
    "data": "Prove and show token files, ours and other projects'.",
    "train": "Predict a training run, run it, and close the books.",
    "launch": "Print the command that starts a run on many ranks.",
    "sample": "Let a trained model write.",
    "export": "Write a checkpoint's weights into one safetensors file.",
    "compare": "Hold a run, a report or a ledger against another, line by line.",
    "report": "One HTML file of a run: closing table, curves, memory, FLOPs, configuration.",
    "audit": "What a model does to its numbers: formats, initialisation, copies, determinism.",
    "explain": "What a rearrange, reduce, repeat, einsum or view does: view or copy, FLOPs, bytes, the torch code.",
    "format": "What a number format can represent, and what becomes of a number in it.",
    "models": "The models that are known by name.",
    "machines": "The accelerators that are known, with their peaks, memory and sources.",
    "config": "Show, check and describe configuration files.",
}

EXAMPLES = (
    "torchledger count llama-3-8b",
    "torchledger plan --params 70B --tokens 15T --on h100x1024 --mfu 0.5",
    "torchledger plan --solve params --on h100x8",
    "torchledger train run.toml",
)


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        import torchledger

        click.echo(f"torchledger {torchledger.__version__}")
        ctx.exit()


@click.group(
    cls=LazyCommands,
    commands_from="torchledger.cli.",
    listed=COMMANDS,
    examples=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
@click.option("--no-color", is_flag=True, help="No colours, whatever the terminal can do.")
@click.option("-q", "--quiet", is_flag=True, help="Only the answer: no notes on stderr.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def torchledger_command(ctx: click.Context, no_color: bool, quiet: bool, debug: bool) -> None:
    """The books of a training run: FLOPs, bytes, seconds and money; predicted, trained, measured, reconciled.

    The answer goes to stdout, everything else to stderr. Exit codes: 0 fine, 1 failed, 2 wrong usage or config,
    3 does not fit, 4 compare beyond tolerance, 130 interrupted, 143 terminated.
    """
    ctx.obj = {"no_color": no_color, "quiet": quiet, "debug": debug}


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and give back its exit code.

    Args:
        args: the words after the program's name; the process's own where nothing is given.
    """
    words = list(sys.argv[1:] if args is None else args)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us: what is told goes nowhere, what is done is done
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - it stays open as they do
    try:
        code: Any = torchledger_command.main(words, prog_name="torchledger", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader of a pipe has seen enough; what is left in the buffer goes nowhere, quietly
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except click.UsageError as error:
        from torchledger.cli.torchrun import is_heard

        return report_failure(error, debug="--debug" in words) if is_heard() else error.exit_code
    except Exception as error:  # noqa: BLE001 - every error becomes a message and an exit code here
        return report_failure(error, debug="--debug" in words)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return 130
    return code if isinstance(code, int) else 0
