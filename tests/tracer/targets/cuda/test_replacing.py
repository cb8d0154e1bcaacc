import types

import pytest

from torchledger.tracer.targets.cuda.replacing import replaced


def test_everything_is_put_back():
    """Attributes that were there are as before, and those that were not are gone, also after an exception."""
    owner = types.SimpleNamespace(a=1)

    def fail():
        with replaced(owner, {"a": 2, "b": 3}):
            assert (owner.a, owner.b) == (2, 3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert vars(owner) == {"a": 1}
