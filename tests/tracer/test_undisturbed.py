"""Global streams and settings are put back, whatever a step does to them."""

import random

import numpy as np
import pytest
import torch

from torchledger.tracer.undisturbed import undisturbed


def _state():
    return (
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002  # the global stream
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.is_anomaly_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.allow_tf32,
    )


def _disturb():
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002  # the global stream
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.set_num_threads(1 if torch.get_num_threads() > 1 else 2)
    torch.set_float32_matmul_precision("medium")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_dtype("cpu", torch.float16)
    torch.set_autocast_cache_enabled(False)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = True


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_everything_is_put_back(error):
    """Also when it ends with an exception or an interrupt."""
    before = _state()
    try:
        with undisturbed():
            _disturb()
            assert _state() != before
            if error is not None:
                raise error
    except (ValueError, KeyboardInterrupt):
        pass
    assert _state() == before


def test_flags_that_torch_has_locked_are_left_alone(monkeypatch):
    """After `torch.backends.disable_global_flags` nobody may set cuDNN's flags by name; a trace still ends well."""
    monkeypatch.setattr(torch.backends, "__allow_nonbracketed_mutation_flag", False)
    before = torch.backends.cudnn.benchmark
    with undisturbed():
        torch._C._set_cudnn_benchmark(not before)
    assert torch.backends.cudnn.benchmark == before
