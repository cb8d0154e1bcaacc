"""`python -m torchledger`, which torchrun needs."""

import sys

from torchledger.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
