"""`Call`: one operation call with its place in the step."""

from __future__ import annotations

from dataclasses import dataclass

from torchledger.ledger import GradientOf, Phase
from torchledger.tracer.signature import Signature


@dataclass(frozen=True, slots=True)
class Call:
    """One operation call.

    Attributes:
        signature: the call without its data; equal calls share one object.
        module: path of the module that ran it, in the backward pass of the module whose forward it differentiates.
        phase: phase of the step.
        gradient_of: for a matrix product in the backward pass, whose gradient it makes.
        kind: kind that its module asks for (`attention`), "" for the operation's own.
        source: source line of the user's code; in the backward pass that of the forward.
        visible: what that module says of its mask: query-key pairs that it lets through, and all pairs.
    """

    signature: Signature
    module: str
    phase: Phase | str
    gradient_of: GradientOf
    kind: str
    source: str
    visible: tuple[int, int] | None = None
