"""A pipeline step, event by event: every piece starts when its rank is free and its input has arrived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchledger.planner.outcome import Slot
from torchledger.planner.schedule_cost import StageCosts
from torchledger.planner.schedule_order import Piece, Turn, as_message, neighbours, order
from torchledger.spec.strategy import Schedule


@dataclass(frozen=True, slots=True)
class Simulation:
    """How a step went.

    Attributes:
        total_s: seconds until the last piece is done.
        time_lines: per rank, its slots by start: `forward`, `backward` (both gradients, or that of the input alone
            where a `weight gradient` follows), and `send`, which runs beside them.
        in_flight: per rank per chunk, micro-batches whose activations were alive at the first moment at which most
            were (all chunks together).
    """

    total_s: float
    time_lines: tuple[tuple[Slot, ...], ...]
    in_flight: tuple[tuple[int, ...], ...]

    @property
    def busy_s(self) -> tuple[float, ...]:
        """Seconds that each rank computes."""
        return tuple(sum(slot.end_s - slot.start_s for slot in line if slot.what != "send") for line in self.time_lines)


def simulate(schedule: Schedule, costs: StageCosts, num_micro_batches: int, send_s: float = 0.0) -> Simulation:
    """Run a step.

    A rank computes one piece at a time. What it hands on takes `send_s` and does not keep it from computing; a link
    carries one message at a time in each direction. The first rank has its inputs at 0.

    Args:
        schedule: order of the pieces (`schedule_order.order`).
        costs: per rank, per chunk (`dualpipe`: its chunk of the forward path and that of the backward path).
        num_micro_batches: of a step.
        send_s: seconds that activations or their gradients of one micro-batch take from rank to rank.

    Returns:
        The step, exact for this model of it.
    """
    num_stages, num_chunks = len(costs), len(costs[0])
    orders = order(schedule, num_stages, num_chunks, num_micro_batches)
    lines = _Run(schedule, costs, send_s, orders).lines()
    alive = tuple(most_alive(turns, num_chunks) for turns in orders)
    return Simulation(max(line[-1].end_s for line in lines), tuple(map(tuple, lines)), alive)


def most_alive(turns: Sequence[Turn], num_chunks: int) -> tuple[int, ...]:
    """Micro-batches per chunk whose activations are alive, at the first moment at which most are.

    All chunks count alike. Activations live from the start of the forward pass to the end of the backward pass, or of
    the weight gradient where it runs apart; those of an overlapped forward and backward pass are alive together.
    """
    alive, most = [0] * num_chunks, [0] * num_chunks
    for turn in turns:
        for piece in turn:
            alive[piece.chunk] += piece.what == "forward"
        if sum(alive) > sum(most):
            most = alive.copy()
        for piece in turn:
            alive[piece.chunk] -= piece.what in ("backward", "weight gradient")
    return tuple(most)


class _Run:
    """The state of a step that runs: who is free when, and what has arrived."""

    def __init__(self, schedule: Schedule, costs: StageCosts, send_s: float, orders: Sequence[Sequence[Turn]]) -> None:
        self.costs = costs
        self.send_s = send_s
        self.orders = orders
        self.free = [0.0] * len(costs)
        self.link_free: dict[tuple[int, int], float] = {}
        self.arrived: dict[tuple[int, Piece], float] = {}
        self.slots: list[list[Slot]] = [[] for _ in costs]
        self.before, self.after = neighbours(schedule, len(costs), len(costs[0]))

    def lines(self) -> list[list[Slot]]:
        """Run every rank as far as its inputs go, again whenever one arrives."""
        position = [0] * len(self.orders)
        ranks = list(range(len(self.orders)))
        while ranks:
            rank = ranks.pop()
            turns = self.orders[rank]
            while position[rank] < len(turns):
                turn = turns[position[rank]]
                start_s = self.ready_s(rank, turn)
                if start_s is None:
                    break
                ranks += self.run(rank, turn, start_s)
                position[rank] += 1
        assert all(p == len(turns) for p, turns in zip(position, self.orders, strict=True)), "the schedule is stuck"
        for line in self.slots:
            line.sort(key=lambda slot: slot.start_s)
        return self.slots

    def ready_s(self, rank: int, turn: Turn) -> float | None:
        """When a rank can start, or nothing while an input is missing."""
        ready_s = self.free[rank]
        for piece in turn:
            if piece.what == "weight gradient":
                continue
            places = self.before if piece.what == "forward" else self.after
            if (rank, piece.chunk) not in places:
                continue
            arrived_s = self.arrived.get((rank, as_message(piece)))
            if arrived_s is None:
                return None
            ready_s = max(ready_s, arrived_s)
        return ready_s

    def run(self, rank: int, turn: Turn, start_s: float) -> list[int]:
        """Compute, then send; the ranks that get something."""
        end_s = start_s
        for what, chunk, micro_batch in turn:
            cost = self.costs[rank][chunk]
            begin_s = end_s
            if what == "forward":
                end_s += cost.forward_s
            elif what == "weight gradient":
                end_s += cost.weight_s
            else:
                end_s += cost.backward_s + (cost.weight_s if what == "backward" else 0.0)
            shown = "backward" if what == "input gradient" else what
            self.slots[rank].append(Slot(begin_s, end_s, shown, micro_batch, chunk))
        self.free[rank] = end_s
        return [other for piece in turn if (other := self.send(rank, piece, end_s)) is not None]

    def send(self, rank: int, piece: Piece, now_s: float) -> int | None:
        """Hand on a result; the rank that gets it."""
        if piece.what == "weight gradient":
            return None
        forward = piece.what == "forward"
        place = (self.after if forward else self.before).get((rank, piece.chunk))
        if place is None:
            return None
        other, chunk = place
        arrives_s = now_s
        if self.send_s and other != rank:
            start_s = max(now_s, self.link_free.get((rank, other), 0.0))
            arrives_s = self.link_free[rank, other] = start_s + self.send_s
            self.slots[rank].append(Slot(start_s, arrives_s, "send", piece.micro_batch, piece.chunk))
        self.arrived[other, as_message(piece._replace(chunk=chunk))] = arrives_s
        return other
