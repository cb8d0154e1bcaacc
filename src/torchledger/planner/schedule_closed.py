"""Seconds of a pipeline step in closed form: the longest path through the graph of its pieces.

Every function returns the length of the longest of a few paths that are there in the graph. So none is longer than the
simulation, and it is exact where the longest path is among them. How far it can fall short is said with each function,
measured on draws that tests/planner/test_schedule_closed.py repeats.

All paths look alike. The path stays on one rank `s` for all of its m · busy seconds but for what it does elsewhere: it
*enters* `s` late, with a gain over what `s` could have done until then, and *leaves* it early, with a gain over what
`s` would still have to do. Backwards in time a schedule is the same schedule with forward and backward passes swapped.

In a run of equal stages all that is compared is convex in the number of the stage. So only the first and the last stage
of every run are looked at, and the time this takes grows with the number of different stages, not of stages.
"""

from __future__ import annotations

# ruff: noqa: PLR1730 (the search calls these 50,000 times, and `max` takes three times as long as `if`)
from collections.abc import Sequence
from itertools import accumulate

from torchledger.planner.schedule_cost import ChunkCost, StageCosts

#: Number of stages before it, cost, number of equal stages.
Run = tuple[int, ChunkCost, int]


def runs_of(costs: StageCosts) -> list[Run]:
    """Runs of equal stages that follow each other, of one chunk each.

    >>> runs_of(((ChunkCost(2, 1, 1),), (ChunkCost(1, 1, 1),), (ChunkCost(1, 1, 1),)))[1]
    (1, ChunkCost(forward_s=1, backward_s=1, weight_s=1), 2)
    """
    runs = []
    stage, num_stages = 0, len(costs)
    while stage < num_stages:
        chunks = costs[stage]
        end = stage + 1
        while end < num_stages and costs[end] == chunks:
            end += 1
        runs.append((stage, chunks[0], end - stage))
        stage = end
    return runs


def gpipe_s(runs: Sequence[Run], num_micro_batches: int, send_s: float) -> float:
    """Two flow shops of equal jobs, one after the other: each takes all stages once and the slowest m - 1 times more.

    Exact. A link is a machine of the flow shop too. With equal stages: (m + p - 1)(f + b), a bubble share of
    (p - 1) / m (arXiv:1811.06965, section 2.3; arXiv:2104.04473, section 2.2.1).

    Args:
        runs: `runs_of` the costs of two stages or more.
        num_micro_batches: m.
        send_s: seconds from stage to stage.

    >>> gpipe_s(runs_of(((ChunkCost(1, 1, 1),),) * 4), 8, 0) == (8 + 4 - 1) * (1 + 2)
    True
    """
    once_s = 2 * (runs[-1][0] + runs[-1][2] - 1) * send_s
    slow_f = slow_b = send_s
    for _, (forward_s, input_s, weight_s), size in runs:
        backward_s = input_s + weight_s
        once_s += size * (forward_s + backward_s)
        slow_f = max(slow_f, forward_s)
        slow_b = max(slow_b, backward_s)
    return once_s + (num_micro_batches - 1) * (slow_f + slow_b)


def one_by_one_s(runs: Sequence[Run], num_micro_batches: int, send_s: float) -> float:
    """1F1B with uneven stages.

    With `w(s) = p - 1 - s` warm-up passes, `F(t)`, `B(t)` sums of stages 0 to t and `M(t)` the slowest forward pass of
    them, a path reaches the end of forward pass w(t) of stage t after `F(t) + w(t) M(t)` and goes back from there to s:

        T        = max over s of  m (f(s) + b(s)) + enter(s) + leave(s)
        enter(s) = max over t >= s of  F(t) + w(t) M(t) + B(t) - B(s)  -  (w(s) + 1) f(s)
        leave(s) = the same with forward and backward passes swapped

    With equal stages that is (m + p - 1)(f + b). Sending adds `send_s` to every step between stages. It shows in the
    steady state too: stages s to t run t - s + 1 micro-batches in a cycle that sends 2 (t - s) times. So with equal
    stages a micro-batch takes f + b + 2 (p - 1)/p · send_s, and less the more one stage is slower than the others.

    With m <= p the first stages run all of their forward passes before their first backward pass: there w(s) = m - 1,
    and a path that enters late leaves after the stage's own passes, or the other way round (`_few_s`).

    Exact for send_s = 0, whatever the stages, and with sends for equal stages between any first and last one. Where
    stages have 3 or 4 layers and sends take up to a forward pass, it is at most 2 % and in the mean 0.03 % short; for
    stages and passes of any size, and m > p, 3.5 % and 0.15 %.

    Args:
        runs: `runs_of` the costs.
        num_micro_batches: m.
        send_s: seconds from stage to stage.

    >>> one_by_one_s(runs_of(((ChunkCost(1, 1, 1),),) * 4), 8, 0) == (8 + 4 - 1) * (1 + 2)
    True
    """
    end, hop_s = runs[-1][0] + runs[-1][2] - 1, 2 * send_s
    if num_micro_batches <= end + 1:
        return _few_s(runs, num_micro_batches, send_s)
    total_s = enter_s = leave_s = 0.0
    gains: list[tuple[int, float]] = []
    for rest, busy_s, path_s, until_f, until_b in reversed(_reaches(runs, end, send_s)):
        if until_f > enter_s:
            enter_s = until_f
        if until_b > leave_s:
            leave_s = until_b
        here_s = (num_micro_batches - 1 - rest) * busy_s + enter_s + leave_s - path_s
        if here_s > total_s:
            total_s = here_s
        if hop_s:
            gains.append((end - rest, here_s))
    if hop_s:
        total_s = max(total_s, _around_s(runs, send_s, dict(gains), num_micro_batches - 2 - end, split=False))
    return total_s


#: Of a stage: w(s), f(s) + b(s), F(s) + B(s) with what sending takes, and this with w(s) times the slowest forward and
#: with w(s) times the slowest backward pass.
Reach = tuple[int, float, float, float, float]


def _reaches(runs: Sequence[Run], end: int, send_s: float) -> list[Reach]:
    """The first and last stage of every run; with sends the second stage too, which is the first one behind a link."""
    hop_s = 2 * send_s
    slow_f = slow_b = path_s = 0.0
    rows: list[Reach] = []
    for first, (forward_s, input_s, weight_s), size in runs:
        backward_s = input_s + weight_s
        busy_s = forward_s + backward_s
        if forward_s > slow_f:
            slow_f = forward_s
        if backward_s > slow_b:
            slow_b = backward_s
        path_s += busy_s
        rest = end - first
        rows.append((rest, busy_s, path_s, path_s + rest * slow_f, path_s + rest * slow_b))
        if send_s > slow_f:  # behind the first stage a link can be what is slowest
            slow_f = send_s
        if send_s > slow_b:
            slow_b = send_s
        for more in (1, size - 2) if hop_s and not first and size > 2 else (size - 1,):
            if more:
                path_s += more * (busy_s + hop_s)
                rest -= more
                rows.append((rest, busy_s, path_s, path_s + rest * slow_f, path_s + rest * slow_b))
        path_s += hop_s
    return rows


def _few_s(runs: Sequence[Run], num_micro_batches: int, send_s: float) -> float:
    """1F1B with at most as many micro-batches as stages. Stages after which w(s) begins to fall are looked at too."""
    end = runs[-1][0] + runs[-1][2] - 1
    falls = end + 1 - num_micro_batches
    rows: list[tuple[int, int, float, float, float, float, float, float]] = []
    slow_f = slow_b = done_s = back_s = 0.0
    for first, (forward_s, input_s, weight_s), size in runs:
        backward_s = input_s + weight_s
        for stage in sorted({first, first + size - 1, falls, falls + 1, 1}):
            if first <= stage < first + size:
                link_s = send_s if stage else 0.0
                slow_f, slow_b = max(slow_f, forward_s, link_s), max(slow_b, backward_s, link_s)
                passed, warm_up = stage - first + 1, min(num_micro_batches - 1, end - stage)
                forward = done_s + passed * forward_s + stage * send_s
                backward = back_s + passed * backward_s + stage * send_s
                reach_f, reach_b = forward + warm_up * slow_f, backward + warm_up * slow_b
                rows.append((stage, warm_up, forward_s, backward_s, forward, backward, reach_f, reach_b))
        done_s += size * forward_s
        back_s += size * backward_s
    total_s = enter_s = leave_s = 0.0
    stays: dict[int, float] = {}
    for stage, warm_up, forward_s, backward_s, forward, backward, reach_f, reach_b in reversed(rows):
        enter_s = max(enter_s, reach_f + backward)
        leave_s = max(leave_s, reach_b + forward)
        gain_s = enter_s - backward + leave_s - forward
        if warm_up == num_micro_batches - 1:
            gain_s = max(enter_s - backward + reach_b, reach_f + leave_s - forward)
        stays[stage] = gain_s + (num_micro_batches - 1 - warm_up) * (forward_s + backward_s)
        total_s = max(total_s, stays[stage])
    if send_s:
        total_s = max(total_s, _around_s(runs, send_s, stays, num_micro_batches - 2 - end, split=False))
    return total_s


def zero_bubble_s(runs: Sequence[Run], num_micro_batches: int, send_s: float) -> float:
    """ZB-H1 with uneven stages and more micro-batches than stages.

    A rank first runs forward passes only, then input gradients too, then weight gradients too. So a path may enter rank
    `s` from a stage behind it on which its first turns take longer, and leave it for a stage before it on which the
    last turns, without forward passes, take longer. With equal stages the bubble is

        (p - 1) max(f + b - w, f)

    where b is the input gradient alone: Table 2 of arXiv:2401.10241, which takes w <= b.

    Exact for send_s = 0 where stages have 3 or 4 layers, or the same between any first and last one; for passes of any
    size at most 7 % and in the mean 0.15 % short. With sends of up to a fifth of a forward pass 2 % and 0.03 %, of up
    to a whole one 7.5 % and 0.5 %.

    Args:
        runs: `runs_of` the costs.
        num_micro_batches: m, more than stages.
        send_s: seconds from stage to stage.

    >>> zero_bubble_s(runs_of(((ChunkCost(1, 1, 1),),) * 4), 8, 0) == 8 * 3 + (4 - 1) * (1 + 1 - 1)
    True
    """
    rows: list[Row] = []
    end = runs[-1][0] + runs[-1][2] - 1
    done_s = back_s = 0.0
    for first, (forward_s, backward_s, weight_s), size in runs:
        for stage in {first, first + size - 1, *((1,) if send_s and not first and size > 1 else ())}:
            passed = stage - first + 1
            done, back = done_s + passed * forward_s, back_s + passed * backward_s
            rows.append((stage, forward_s, backward_s, weight_s, done + stage * send_s, back + stage * send_s))
        done_s += size * forward_s
        back_s += size * backward_s
    rows.sort()
    enter = _zero_bubble_enter(rows, end, send_s)
    leave = _zero_bubble_leave(rows, end)
    gains = {
        row[0]: num_micro_batches * (row[1] + row[2] + row[3]) + a + b
        for row, a, b in zip(rows, enter, leave, strict=True)
    }
    total_s = max(gains.values())
    if send_s:
        total_s = max(total_s, _around_s(runs, send_s, gains, num_micro_batches - 2 - end, split=True))
    return total_s


#: Stage, seconds of its forward pass, input gradient and weight gradient, and of all forward passes and all input
#: gradients of stages 0 to this one with what sending them takes.
Row = tuple[int, float, float, float, float, float]


def _zero_bubble_enter(rows: Sequence[Row], end: int, send_s: float) -> list[float]:
    """What entering each stage late gains: forward to t, back to z where turns are slow, on to the stage."""
    slow_s, slowest = 0.0, []
    for stage, forward_s, *_ in rows:
        slow_s = max(slow_s, forward_s, send_s if stage else 0.0)
        slowest.append(slow_s)
    gains, until_s = [], 0.0
    ways: list[tuple[float, float]] = []  # seconds of a turn on z, seconds until it is there
    for (stage, forward_s, backward_s, _, done_s, back_s), slow in zip(reversed(rows), reversed(slowest), strict=True):
        until_s = max(until_s, done_s + (end - stage) * slow + back_s)
        turn_s = forward_s + backward_s
        ways = [way for way in ways if way[0] > turn_s]
        ways.append((turn_s, until_s))
        there_s = max(until + stage * (turn - turn_s) for turn, until in ways)
        gains.append(there_s - back_s - (end - stage + 1) * forward_s)
    return gains[::-1]


def _zero_bubble_leave(rows: Sequence[Row], end: int) -> list[float]:
    """What leaving each stage early gains: forward to t, back to where the last turns are slow, and on to the end."""
    then_s = float("-inf")
    ways: list[tuple[float, float]] = []  # seconds of a turn without forward pass, seconds that follow them
    rest = []
    for stage, _, backward_s, weight_s, done_s, back_s in rows:
        then_s = max(then_s, (stage + 1) * weight_s - back_s + backward_s)
        turn_s = backward_s + weight_s
        ways = [way for way in ways if way[0] > turn_s]
        ways.append((turn_s, then_s))
        rest.append(done_s + back_s + max((end - stage) * turn + then for turn, then in ways))
    best = list(accumulate(reversed(rest), max))[::-1]
    return [
        best_s - done_s - (end - stage + 1) * backward_s - (end + 1) * weight_s
        for best_s, (stage, _, backward_s, weight_s, done_s, _) in zip(best, rows, strict=True)
    ]


def _around_s(runs: Sequence[Run], send_s: float, stays: dict[int, float], num_turns: int, *, split: bool) -> float:
    """A path that goes round stages s to t again and again, sending 2 (t - s) times for t - s + 1 micro-batches.

    Args:
        runs: `runs_of` the costs.
        send_s: seconds from stage to stage.
        stays: seconds of the path that stays on a stage instead, by stage, at least the first of every run.
        num_turns: micro-batches between entering and leaving stage 0.
        split: weight gradients run apart: only those of stage s are on the path. Otherwise they are a part of the
            backward pass, and stage s runs s micro-batches more between entering and leaving.
    """
    around = _slowest_cycle(runs, send_s, split=split)
    if around is None:
        return 0.0
    first, last = around
    size = last - first + 1
    cycles, left = divmod(max(0, num_turns + (0 if split else first)), size)
    on_it = [cost for start, cost, equal in runs if first <= start <= last for _ in range(equal)]
    busy = [sum(cost) for cost in on_it]
    more = [cost.weight_s if split else 0.0 for cost in on_it]
    turn = [a - b for a, b in zip(busy, more, strict=True)]
    total_s = stays[first] - (cycles * size + left) * busy[0]
    total_s += cycles * (sum(turn) + more[0] + 2 * send_s * (size - 1))
    if left:
        part_s = max(sum(turn[s : s + left]) + more[s] for s in range(size - left + 1))
        total_s += max(part_s + 2 * send_s * (left - 1), left * max(busy))
    return total_s


def _slowest_cycle(runs: Sequence[Run], send_s: float, *, split: bool) -> tuple[int, int] | None:
    """First and last of the two or more stages that take longest per micro-batch, or nothing if one alone does.

    The largest mean over intervals, by Dinkelbach's method: the interval with the largest sum over the best mean yet,
    until none has any. Such an interval begins and ends with whole runs of equal stages.
    """
    stages = [(first, sum(cost), cost[2] if split else 0.0, size) for first, cost, size in runs]
    mean = max([stage[1] for stage in stages])
    found = None
    while True:
        best, here, start, better = mean * 1e-12, float("-inf"), 0, None
        for first, busy_s, more_s, size in stages:
            over = busy_s - more_s + 2 * send_s - mean
            here += over * size
            fresh = busy_s - mean + over * (size - 1)
            if here <= fresh:
                here, start = fresh, first
            if here > best and first + size - 1 > start:
                best, better = here, (start, first + size - 1)
        if better is None:
            return found
        found = better
        mean += best / (better[1] - better[0] + 1)
