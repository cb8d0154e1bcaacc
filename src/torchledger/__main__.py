"""Where `torchledger` begins, and `python -m torchledger`, which torchrun needs. Ctrl-C as it loads: no traceback."""

import sys

__all__ = ["main"]


def main() -> int:
    """Load the command line, run it and give back its exit code."""
    try:
        from torchledger.cli.main import main as answer
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    return answer()


if __name__ == "__main__":
    sys.exit(main())
