"""What a step would hold if it kept its optimizer's state or its saved activations in the host's memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import torch

from torchledger.tracer.recorder import Recorder
from torchledger.tracer.result import Trace


def offloaded_state(trace: Trace) -> Trace:
    """The trace with the optimizer's state on the host, and its arithmetic there too (ZeRO-Offload, arXiv:2101.06840).

    Gradients go to the host and parameters come back without a second copy on the device.
    """
    blocks = tuple(
        replace(block, on_host=True) if block.part == "optimizer state" or block.phase == "optimizer" else block
        for block in trace.timeline.blocks
    )
    assumptions = (*trace.assumptions, "the optimizer runs on the host, with its state and temporaries there")
    return replace(
        trace,
        timeline=replace(trace.timeline, blocks=blocks),
        ledger=replace(trace.ledger, assumptions=(*trace.ledger.assumptions, assumptions[-1])),
        assumptions=assumptions,
    )


@contextlib.contextmanager
def saving_on_host(recorder: Recorder) -> Iterator[None]:
    """While this is on, what autograd saves is copied to the host and back, as `torch.autograd.graph.save_on_cpu` does.

    That function saves everything, weights among them; here as there.
    """

    def pack(tensor: torch.Tensor) -> tuple[torch.Tensor, bool]:
        if tensor.is_sparse:
            return tensor, False
        packed = torch.empty(tensor.size(), dtype=tensor.dtype, layout=tensor.layout)
        entry = recorder.storages.entry(packed.untyped_storage()._cdata)  # noqa: SLF001  # the storage's address
        if entry is not None:
            entry.on_host = True
        packed.copy_(tensor)
        return packed, True

    def unpack(packed: tuple[torch.Tensor, bool]) -> torch.Tensor:
        tensor, is_on_host = packed
        return tensor.clone() if is_on_host else tensor

    recorder.assumptions.append("saved tensors go to the host and come back, weights among them")
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield
