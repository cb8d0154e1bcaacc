"""`Piece`: one part of an operation's cost, before it has a place in the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchledger.ledger import Amount, GradientOf, Kind, Line, Origin, Phase, Shape, Work


@dataclass(frozen=True, slots=True)
class Piece:
    """What one kind of work inside an operation costs.

    An operation is a tuple of pieces, because a convention chooses by kind and one kernel may do several kinds: a fused
    attention kernel contracts (kind `attention`) and takes a softmax (kind `reduction`). The bytes of a fused kernel
    stand on its first piece.

    Attributes:
        op: canonical name (`matmul`, `attention_softmax`, `adamw` ...).
        kind: class of operation.
        work: its cost, once.
        shape: named sizes.
        gradient_of: in a backward operation, whose gradient this piece makes.
    """

    op: str
    kind: Kind
    work: Work
    shape: Shape = ()
    gradient_of: GradientOf = "none"

    def line(
        self,
        module: str,
        *,
        phase: Phase = "forward",
        gradient_of: GradientOf | None = None,
        number_format: str = "fp32",
        times: Amount = 1,
        origin: Origin = "formula",
        source: str = "",
        bytes_kept: Amount = None,
    ) -> Line:
        """The piece at a place in the run.

        `gradient_of` and `bytes_kept` take the place of the piece's own where they are given.

        >>> Piece("matmul", "matmul", Work.of_flops(12)).line("layers.*.mlp.up", times=3).total.flops_full
        36
        """
        work = self.work if bytes_kept is None else replace(self.work, bytes_kept=bytes_kept)
        return Line(
            module,
            self.op,
            work,
            self.kind,
            phase,
            self.gradient_of if gradient_of is None else gradient_of,
            number_format,
            self.shape,
            times,
            origin,
            source,
        )


def moved(pieces: Sequence[Piece], *, bytes_read: Amount, bytes_written: Amount) -> tuple[Piece, ...]:
    """The same pieces moving the given bytes: all of them on the first piece, none on the others.

    For one who sees the tensors themselves and knows their bytes better than a rule of sizes can.

    >>> one, two = moved(
    ...     [Piece("a", "matmul", Work()), Piece("b", "reduction", Work(bytes_read=9))], bytes_read=4, bytes_written=2
    ... )
    >>> one.work, two.work
    (Work(bytes_read=4, bytes_written=2), Work())
    """
    return tuple(
        replace(
            piece,
            work=replace(
                piece.work,
                bytes_read=bytes_read if number == 0 else 0,
                bytes_written=bytes_written if number == 0 else 0,
            ),
        )
        for number, piece in enumerate(pieces)
    )
