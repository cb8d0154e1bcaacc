"""What a call costs, as the recorder writes it."""

import pytest

from torchledger.tracer import Recorder


@pytest.fixture
def lines():
    """Lines of what runs, without those that make data."""

    def lines(run):
        with Recorder() as recorder:
            run()
        return [line for line in recorder.trace().ledger if line.op not in {"fill", "rand", "randn"}]

    return lines


@pytest.fixture
def only(lines):
    """The one line of a call."""

    def only(run):
        (line,) = lines(run)
        return line

    return only


@pytest.fixture
def backward(lines):
    """Lines of the backward pass of what a call returns, without the gradient of its sum."""

    def backward(run):
        found = lines(lambda: run().sum().backward())
        return [line for line in found if line.phase == "backward" and line.kind != "copy"]

    return backward
