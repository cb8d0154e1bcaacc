"""Sizes that most rows share, and how a row is looked at."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchledger.tracer import Recorder
from torchledger.tracer.fake import as_if_real


@pytest.fixture
def look():
    """Look at anything that runs, on no memory."""

    def look(run):
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        with torch.random.fork_rng(devices=[]), as_if_real(), mode, Recorder(fake_mode=mode) as recorder:
            run()
        return recorder.trace()

    return look
