"""Workers beside one another have one thread each in torch: two on every core wait for each other more than they work.

What a test starts has as many threads as it would have anywhere; they only do not burn a core while they wait.
"""

import os
import sys

IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ

if IS_WORKER:  # before torch is there, whose OpenMP reads it once
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_runtest_setup() -> None:
    """One thread at the begin of every test, whatever the one before it has set."""
    torch = sys.modules.get("torch")
    if IS_WORKER and torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)
