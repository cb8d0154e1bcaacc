"""What a chunk of layers costs a schedule, and what a schedule costs a step."""

from __future__ import annotations

from typing import NamedTuple


class ChunkCost(NamedTuple):
    """Seconds of one micro-batch in one chunk of one rank.

    A named tuple and no dataclass: the search makes and reads tens of thousands of them.

    Attributes:
        forward_s: forward pass.
        backward_s: gradient of its input, what recompute runs again included.
        weight_s: gradients of its weights. `zero-bubble` and parts of `dualpipe` run them apart; other schedules run
            both parts of the backward pass as one.
    """

    forward_s: float
    backward_s: float
    weight_s: float


#: Per rank, per chunk.
StageCosts = tuple[tuple[ChunkCost, ...], ...]


class PipelineTime(NamedTuple):
    """Seconds of a step's pipeline, before gradients are reduced over data parallel ranks.

    For every rank `total_s = busy_s + bubble_s + send_exposed_s`.

    Attributes:
        total_s: until the last rank is done.
        busy_s: per rank, computing.
        bubble_s: per rank, what it would wait for other ranks if sending took no time.
        send_exposed_s: how much longer the step is because sending takes time; the same for every rank.
    """

    total_s: float
    busy_s: tuple[float, ...]
    bubble_s: tuple[float, ...]
    send_exposed_s: float
