import pytest
import torch

from torchledger.trainer.determinism import deterministic, nondeterministic


def refused():
    """An operation that torch has no deterministic way to do."""
    return torch.zeros(3).put_(torch.tensor([0]), torch.tensor([1.0]))


def test_inside_what_does_not_repeat_is_refused_and_told_in_our_words():
    """Torch's error names the operation, and becomes one of a training run with the step."""
    with deterministic(True):
        with pytest.raises(RuntimeError) as caught:
            refused()
        told = nondeterministic(caught.value, 3)
    assert str(told).startswith("put_ does not have a deterministic implementation")
    assert "(step 3); set deterministic = false" in str(told)


def test_inside_memory_is_filled():
    """What nobody wrote is not a number, so that whoever reads it is found out."""
    with deterministic(True):
        assert torch.empty(1000).isnan().all()


@pytest.mark.parametrize("before", [True, False])
def test_afterwards_torch_is_as_before(before):
    """The mode of whoever called is put back, after an error too."""
    torch.use_deterministic_algorithms(before)
    try:
        with pytest.raises(ZeroDivisionError), deterministic(True):
            1 / 0  # noqa: B018  # an error is wanted
        assert torch.are_deterministic_algorithms_enabled() == before
    finally:
        torch.use_deterministic_algorithms(False)


def test_not_asked_for_nothing_changes():
    """Without the mode everything runs."""
    with deterministic(False):
        assert refused().tolist() == [1, 0, 0]


def test_other_errors_are_not_of_the_mode():
    """A wrong shape stays what it is."""
    with deterministic(True):
        assert nondeterministic(RuntimeError("shape '[2]' is invalid for input of size 3"), 1) is None
