import pytest

from torchledger import machine
from torchledger.tracer.targets.cuda.capability import UnknownCapability, capability_of, default_chip


def test_capabilities():
    """Chips have the compute capability that NVIDIA publishes; no chip named means that of an A100."""
    assert capability_of(machine.get("h100")) == (9, 0)
    assert capability_of(machine.get("t4")) == (7, 5)
    assert capability_of(default_chip()) == (8, 0)


def test_a_chip_without_one_is_an_error():
    """Which kernels an AMD chip would run is not guessed."""
    with pytest.raises(UnknownCapability, match="MI210"):
        capability_of(machine.get("mi210"))
