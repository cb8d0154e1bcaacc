"""What people complain of in loading data: processes that grow, pinning that crashes."""

from dataclasses import replace

import psutil
import pytest

from torchledger.trainer.batches import Batches
from torchledger.trainer.loop import new_run, train
from torchledger.trainer.resident import resident_bytes
from torchledger.trainer.setup import resolve
from torchledger.trainer.tokenfile import TokenFile


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


def test_reading_a_large_file_takes_no_memory(tmp_path):
    """1,500 batches of 64 x 1,024 from a file of 400 MB: what is resident grows by less than 32 MiB (nanoGPT #287)."""
    path = tmp_path / "large.bin"
    with path.open("wb") as stream:
        stream.truncate(400_000_000)  # zeros that take no disk; they are read as any others
    token_file = TokenFile.open(path, dtype="uint16", vocab_size=257)
    with Batches(token_file, 64, 1024, seed=0) as batches:
        for _ in range(20):
            next(batches)
        before = resident_bytes()
        for _ in range(1500):
            next(batches)
        assert resident_bytes() - before < 2**25
