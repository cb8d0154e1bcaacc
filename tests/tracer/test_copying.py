"""Copies of what a step works on: everything that can be, shared where it cannot."""

import collections
import functools
import logging
import threading
import types

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from torchledger.tracer import TraceError
from torchledger.tracer.copying import Copies
from torchledger.tracer.fake import Fakes


def _copies():
    return Copies(Fakes(FakeTensorMode()))


def test_containers_keep_their_kind_and_one_object_has_one_copy():
    Point = collections.namedtuple("Point", "x y")  # noqa: PYI024  # what is tested
    tensor = torch.zeros(3)
    thing = {"list": [tensor], "point": Point(tensor, 2), "order": collections.OrderedDict(a=tensor), "set": {1, 2}}
    copied = _copies().of(thing)
    fake = copied["list"][0]
    assert isinstance(fake, FakeTensor)
    assert copied["point"].x is fake
    assert copied["order"]["a"] is fake
    assert type(copied["point"]).__name__ == "Point"
    assert copied["set"] == {1, 2}
    assert copied is not thing


def test_a_tuple_without_tensors_is_itself():
    plain = (1, "a", None)
    assert _copies().of(plain) is plain


def test_circles_are_kept():
    thing = types.SimpleNamespace(me=None, items=[])
    thing.me = thing
    thing.items.append(thing.items)
    copied = _copies().of(thing)
    assert copied.me is copied
    assert copied.items[0] is copied.items
    assert copied is not thing


def test_what_cannot_be_copied_is_shared(tmp_path):
    """A lock, an open file, a logger, a mapped file: inside an object whose tensors are faked."""
    mapped = np.memmap(tmp_path / "data", dtype=np.uint8, mode="w+", shape=(4,))
    with (tmp_path / "log").open("w") as file:
        thing = types.SimpleNamespace(
            lock=threading.Lock(), file=file, log=logging.getLogger("x"), mapped=mapped, weight=torch.zeros(2)
        )
        copied = _copies().of(thing)
    assert copied.lock is thing.lock
    assert copied.file is thing.file
    assert copied.log is thing.log
    assert copied.mapped is mapped
    assert isinstance(copied.weight, FakeTensor)


def test_methods_and_partials_follow_their_objects():
    model = nn.Linear(2, 2)
    copies = _copies()
    method, partial = copies.of(model.forward), copies.of(functools.partial(model, torch.zeros(2)))
    assert method.__self__ is partial.func is copies.of(model)
    assert isinstance(partial.args[0], FakeTensor)


def test_slots_and_own_states():
    class Slotted:
        __slots__ = ("weight",)

    class Stated:
        def __getstate__(self):
            return {"weight": self.weight}

        def __setstate__(self, state):
            self.weight, self.was_set = state["weight"], True

    for cls in (Slotted, Stated):
        thing = cls()
        thing.weight = torch.zeros(2)
        copied = _copies().of(thing)
        assert isinstance(copied.weight, FakeTensor)
        assert type(thing.weight) is torch.Tensor
    assert copied.was_set


def test_generators_of_random_numbers_are_copied_and_others_refused():
    generator = torch.Generator().manual_seed(3)
    copied = _copies().of(generator)
    assert copied is not generator
    assert torch.equal(copied.get_state(), generator.get_state())
    with pytest.raises(TraceError, match="draws from the generator `<genexpr>`"):
        _copies().of([number for number in [(i for i in range(3))]])  # noqa: C416  # a list that holds one


def test_views_on_meta_share_one_storage():
    """Two halves of one meta tensor stay halves of one, in order."""
    base = torch.empty(6, device="meta")
    left, right = _copies().of([base[:2], base[2:]])
    assert left.untyped_storage()._cdata == right.untyped_storage()._cdata
    assert (left.device.type, right.storage_offset(), right.untyped_storage().nbytes()) == ("cpu", 2, 24)


def test_an_optimizer_knows_its_step_counts():
    """Their values are read by the next step; everything else is fake."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(1, 2)).sum().backward()
    optimizer.step()
    copied = _copies().of(optimizer)
    state = next(iter(copied.state.values()))
    assert state["step"].item() == 1
    assert isinstance(state["exp_avg"], FakeTensor)
    assert next(iter(optimizer.state.values()))["exp_avg"].is_cpu
