"""What people complain of in loading data: processes that grow, pinning that crashes."""

from dataclasses import replace

import psutil
import pytest

from torchledger.trainer.batches import Batches
from torchledger.trainer.loop import new_run, train
from torchledger.trainer.setup import resolve


@pytest.mark.usefixtures("one_thread")
def test_no_process_is_started_for_data(config):
    """Batches are read by a thread: there is no worker whose memory could grow (pytorch #5902, #20433)."""
    setup = resolve(replace(config, checkpoint_interval=0, eval_interval=0))
    before = set(psutil.Process().children(recursive=True))
    for _ in train(setup, new_run(setup)):
        assert set(psutil.Process().children(recursive=True)) <= before


def test_nothing_is_pinned_for_a_cpu(config):
    """Pinning is for CUDA alone, and nothing warns of its absence: here a warning is an error (nanoGPT #118)."""
    with Batches(resolve(config).data.train, 4, 16, seed=0) as batches:
        assert not any(part.is_pinned() for part in next(batches))
