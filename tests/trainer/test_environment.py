import datetime as dt
import json

import pytest

from torchledger.trainer.environment import environment
from torchledger.trainer.setup import resolve


@pytest.mark.usefixtures("one_thread")
def test_it_says_what_another_run_would_need(config):
    """Versions, device, threads, seeds and data hashes are there, as JSON."""
    setup = resolve(config)
    rows = json.loads(json.dumps(environment(setup, dt.datetime(2026, 1, 2, tzinfo=dt.UTC))))
    assert rows["started_at"] == "2026-01-02T00:00:00+00:00"
    assert {"python", "torch", "numpy", "torchledger"} <= rows["versions"].keys()
    assert rows["numerics"]["num_threads"] == 1
    assert rows["data"]["train_sha256"] == setup.data.train_sha256
    assert rows["seed"] == setup.recipe.seed
    assert "dropout" in rows["streams"]
    assert rows["seeds_of_step_0"].keys() == {"torch", "numpy", "python"}
    assert rows["deterministic_algorithms"] is False
