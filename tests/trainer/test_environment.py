import datetime as dt
import json
from dataclasses import replace

import pytest

from torchledger.meter import kept_heap
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


@pytest.mark.usefixtures("one_thread")
def test_what_was_chosen_at_the_start_is_recorded(config, monkeypatch):
    """Every choice stands there as it was applied, that of the heap included, and each reason is told."""
    now = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    setup = resolve(replace(config, precision="auto", attention="auto", compile="auto", device="cpu"))
    rows = environment(setup, now)
    assert rows["choices"] == {
        "precision": setup.recipe.precision,
        "attention": setup.recipe.attention,
        "compile": "no",
        "num_threads": 1,
        "heap": kept_heap() or "as the C library has it",
    }
    for word in ("precision ", "attention ", "compile no"):
        assert any(reason.startswith(word) for reason in rows["assumptions"]), word
    monkeypatch.setattr("torchledger.trainer.environment.kept_heap", lambda: "kept")
    assert environment(setup, now)["choices"]["heap"] == "kept"
