"""What a run ran on: versions, machine, threads, seeds; enough to see why another run gave something else."""

import datetime as dt
import os
import platform
from dataclasses import asdict
from importlib import metadata
from typing import Any

import torch

from torchledger.meter import device as devices
from torchledger.meter import kept_heap
from torchledger.trainer.seeds import STREAMS, step_seeds
from torchledger.trainer.setup import Setup

__all__ = ["environment"]

_PACKAGES = ("torchledger", "torch", "numpy", "safetensors", "einops", "jaxtyping", "psutil", "tokenizers")


def environment(setup: Setup, now: dt.datetime) -> dict[str, Any]:
    """Rows for `environment.json`."""
    return {
        "schema": "torchledger.environment/1",
        "started_at": now.isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **_versions()},
        "system": {
            "platform": platform.platform(),
            "machine": platform.machine(),
            "hostname": platform.node(),
            "process_id": os.getpid(),
        },
        "device": asdict(devices.facts(setup.device)),
        "numerics": dict(setup.identity.numerics),
        "choices": {
            "precision": setup.recipe.precision,
            "attention": setup.recipe.attention,
            "compile": setup.config.compile,
            "num_threads": setup.config.num_threads,
            "heap": kept_heap() or "as the C library has it",
        },
        "num_interop_threads": torch.get_num_interop_threads(),
        "deterministic_algorithms": setup.config.deterministic or torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "seed": setup.recipe.seed,
        "seeds_of_step_0": step_seeds(setup.recipe.seed, 0, setup.ranks.rank),
        "streams": {name: f"a function of seed and {what}" for name, what in STREAMS.items()},
        "data": {
            "place": str(setup.data.place),
            "train_sha256": setup.data.train_sha256,
            "validation_sha256": setup.data.validation_sha256,
            "tokenizer_hash": setup.data.tokenizer_hash,
            "num_train_tokens": setup.data.train.num_tokens,
            "num_validation_tokens": setup.data.validation.num_tokens,
            "mixture": [
                {
                    "place": str(part.data.place),
                    "weight": part.weight,
                    "train_sha256": part.data.train_sha256,
                    "num_train_tokens": part.data.train.num_tokens,
                }
                for part in setup.mixture
            ],
        },
        "assumptions": list(setup.assumptions),
    }


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
