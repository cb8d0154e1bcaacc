"""Every operation of torch has a price, does no work, or says why its cost cannot be told."""

import sys
import types
import unittest
import warnings

import pytest
import torch

from torchledger.tracer import Recorder
from torchledger.tracer.pricing import prices
from torchledger.tracer.pricing.touched import FREE, PARTIAL
from torchledger.tracer.pricing.untold import WHY, why

#: Operations of attention and products whose prices other tests hold.
CONTRACTIONS_ELSEWHERE = frozenset({"_flash_attention_forward_no_dropout_inplace", "_foreach_mm"})


def _operations():
    """Name -> whether every overload of it is a view, or always runs as other operations."""
    found = {}
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        packet = getattr(torch.ops.aten, name, None) if namespace == "aten" else None
        operation = getattr(packet, overload or "default", None)
        if operation is None:
            continue
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        decomposes = has_kernel(full, "CompositeImplicitAutograd") and not has_kernel(full, "CPU")
        found.setdefault(name, []).append(operation.is_view or decomposes)
    return {name for name, none in found.items() if not all(none)}


def test_every_operation_has_a_price_or_says_why_not():
    """More than 1,100 names; a new version of torch that adds one fails here, by name."""
    operations = _operations()
    assert len(operations) > 1_100
    priced = {name for name in operations if name in prices or name in FREE}
    reasons = {name for name in operations - priced if why(name)}
    assert operations - priced - reasons - CONTRACTIONS_ELSEWHERE == set()
    assert len(reasons) < 90


def test_no_operation_is_both_priced_and_free_or_untold():
    assert {name for name in prices if name in FREE} == set()
    assert set(WHY) & set(prices) == set()


def test_operations_that_touch_a_part_have_a_price_that_knows_it():
    assert set(PARTIAL) <= set(prices)


@pytest.fixture
def samples(monkeypatch):
    """Sample inputs of torch's own tests for every function (they import a test library that is not installed)."""
    stub = types.ModuleType("expecttest")
    stub.TestCase = type("TestCase", (unittest.TestCase,), {})
    monkeypatch.setitem(sys.modules, "expecttest", stub)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

        yield [operation for operation in op_db if not operation.name.startswith("jiterator")]  # CUDA compiles those


def _lines(operation, sample):
    """Lines of a call and of its backward pass; nothing where torch itself refuses the call."""
    with Recorder() as recorder:
        try:
            result = operation(sample.input, *sample.args, **sample.kwargs)
            outputs = result if isinstance(result, (tuple, list)) else [result]
            loss = [t.abs().sum() for t in outputs if isinstance(t, torch.Tensor) and t.requires_grad]
            if loss:
                sum(loss).backward()
        except (RuntimeError, TypeError, ValueError, IndexError):
            return ()
    return tuple(recorder.trace().ledger)


#: Families whose samples run in every test run; all others are a proof.
_QUICK = ("nn.functional.max_pool2d", "nn.functional.interpolate", "linalg.svd", "fft.rfft", "index_put", "mul", "sum")


def _check(operation, dtype):
    """No price fails, none is negative or a fraction, and what is unknown has a reason."""
    known = 0
    for sample in list(operation.sample_inputs("cpu", dtype, requires_grad=operation.supports_autograd))[:4]:
        for line in _lines(operation, sample):
            name = line.op.split(".")[1] if "." in line.op else line.op
            if line.kind == "unknown":
                assert why(name) or "sparse" in line.op, line.op
                continue
            known += 1
            amounts = [amount for amount in line.work.amounts() if amount is not None]
            assert all(isinstance(amount, int) and amount >= 0 for amount in amounts), (line.op, line.work)
    return known


@pytest.mark.parametrize("name", _QUICK)
@pytest.mark.filterwarnings("ignore")
def test_a_family_is_priced_on_torchs_own_samples(samples, name):
    for operation in samples:
        if operation.name == name and torch.float32 in operation.dtypes:
            assert _check(operation, torch.float32) > 0


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_every_function_is_priced_on_torchs_own_samples(samples, dtype):
    """Some 600 functions with 4 sets of arguments each, forward and backward."""
    checked = sum(_check(operation, dtype) for operation in samples if dtype in operation.dtypes)
    assert checked > 2_000
