"""What five measured rows of a group bring, for docs/validation-time.md: tried on the group's other rows.

And for groups that they do not bring to half of the default error: what could have been left at best, in hindsight.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

from measured_steps import ROWS, Adjustable, constants_without

from torchledger.planner.calibration import fit, foretold
from torchledger.planner.fitted import Fitted
from torchledger.planner.held_out import mean_error
from torchledger.planner.hindsight import Floor, after_over_before, choices, least_error
from torchledger.planner.informative import believed, informative
from torchledger.planner.likeness import Place, place
from torchledger.planner.measured import MeasuredRow, read_table

NUM_FITTED, NUM_DRAWS, SMALLEST, MOST_CANDIDATES, MOST_CHOICES = 5, 10, 10, 100, 2000
#: A row is told as slow or fast from so far off on.
FAR = 0.08

CALIBRATED = f"""`torchledger calibrate` with {NUM_FITTED} rows of a group, tried on its others: "drawn" is the mean of
{NUM_DRAWS} draws, "suggested" takes the {NUM_FITTED} rows that `calibrate --suggest {NUM_FITTED}` names, which depend
on the questions and on nothing measured. "Inside" is the share of the others within the 90 % interval that comes with
each prediction; "of the default" is the suggested error over the default one, 1 where the default constants were kept.
"All others" is what is left where each row is foretold from every other row of its group. Groups of {SMALLEST} rows or
more; out of {MOST_CANDIDATES} or more, every n-th is used for it and can be suggested.

How far likeness reaches and how much it weighs was chosen on these same groups.
"""

HINDSIGHT = f"""For the groups that have more than 0.5 "of the default" above: what could have been left at best,
told by someone who knows every row. All shares are of the default error of the same rows.

"Any constants": whatever the values that `calibrate` may give its constants, fitted to these very rows and judged on
them, so much is left at least. It is a bound, by the dual of a linear program (`planner/hindsight.py`), not the best of
a search; where parts of a step overlap, to first order. First of all rows of the group; then of those alone that the
suggested {NUM_FITTED} are judged on, which tells nothing where they are hardly more than there are constants. "Best
choice": of every choice of {NUM_FITTED} rows, or of {MOST_CHOICES:,} drawn ones, the one that happens to bring the
others most, what likeness adds included, and how many of the choices bring half.

NeMo's and BLOOM's bf16 rows are predicted to 3 % by the default constants. BLOOM's row with 104 heads takes 123.7 s,
between 104.5 s with 64 heads and 108.8 s with 128, all else equal: no model that grows with the heads has all three.
"""

UNSEEN = """The file that vTrain's 48 multi-node rows are from has 61 more, which nothing was fitted to or chosen on
(`tests/published/throughput/unseen`).
"""


def calibrated(rows: Sequence[MeasuredRow], adjustable: Adjustable) -> Iterator[str]:
    """By source, chip and precision: the error with default and with fitted constants, and how many lie inside."""
    yield (
        "| source | chip | precision | rows | default | drawn | inside | suggested | inside | of the default "
        "| all others |"
    )
    yield f"|---|---|---|{'---:|' * 8}"
    for (source, chip, precision), group in _groups(rows).items():
        trials = [
            _trial(group, adjustable, random.Random(seed).sample(range(len(group)), NUM_FITTED))
            for seed in range(NUM_DRAWS)
        ]
        default, drawn, inside = (sum(column) / len(trials) for column in zip(*trials, strict=True))
        own, suggested, within = _trial(group, adjustable, _suggested(group, adjustable))
        yield (
            f"| {source} | {chip} | {precision} | {len(group)} | {default:.1%} | {drawn:.1%} | {inside:.0%} "
            f"| {suggested:.1%} | {within:.0%} | {suggested / own:.2f} "
            f"| {_all_others([group[i] for i in _candidates(group)], adjustable):.1%} |"
        )


def _groups(rows: Sequence[MeasuredRow]) -> dict[tuple[str, str, str], list[MeasuredRow]]:
    """Dense rows by source, chip and precision, the largest groups first, those too small left out."""
    groups: dict[tuple[str, str, str], list[MeasuredRow]] = {}
    for row in rows:
        if row.kind == "dense":
            groups.setdefault((row.source, row.cluster.chip.name, row.recipe.precision), []).append(row)
    ordered = sorted(groups.items(), key=lambda each: (-len(each[1]), each[0]))
    return {key: group for key, group in ordered if len(group) >= SMALLEST}


def hindsight(rows: Sequence[MeasuredRow], adjustable: Adjustable) -> Iterator[str]:
    """Of groups that five rows do not bring to half: what could have been left at best."""
    yield (
        "| source | precision | suggested | any constants, all rows | any constants, the others "
        "| choices | best choice | bring half |"
    )
    yield f"|---|---|{'---:|' * 6}"
    for (source, _, precision), group in _groups(rows).items():
        chosen = _suggested(group, adjustable)
        own, suggested, _ = _trial(group, adjustable, chosen)
        if suggested <= own / 2:
            continue
        others = [row for i, row in enumerate(group) if i not in chosen]
        (every, whole), (those, part) = _any_constants(group, adjustable), _any_constants(others, adjustable)
        shares = _choices(group, adjustable)
        yield (
            f"| {source} | {precision} | {suggested / own:.3f} | {every.error / whole:.3f} of {len(group)} "
            f"| {those.error / part:.3f} of {len(others)} | {len(shares):,} | {min(shares):.3f} "
            f"| {sum(share <= 0.5 for share in shares)} |"
        )


def _any_constants(rows: Sequence[MeasuredRow], adjustable: Adjustable) -> tuple[Floor, float]:
    """What no constants go below that are fitted to these rows, and the error with the default ones."""
    start, predicts, measured = (
        constants_without(rows[0]),
        [adjustable(r) for r in rows],
        [r.step_s or 0.0 for r in rows],
    )
    errors = [abs(predict(start) / t - 1) for predict, t in zip(predicts, measured, strict=True)]
    return least_error(predicts, measured, start), sum(errors) / len(errors)


def _choices(group: Sequence[MeasuredRow], adjustable: Adjustable) -> list[float]:
    """By choice of five rows, the error of the others after over before."""
    start, predicts = constants_without(group[0]), [adjustable(row) for row in group]
    rests = [math.log((row.step_s or 0.0) / predict(start)) for row, predict in zip(group, predicts, strict=True)]
    covariance = believed(predicts, [_place(row) for row in group], start)
    chosen = choices(len(group), NUM_FITTED, MOST_CHOICES)
    return [after_over_before(covariance, rests, each) for each in chosen]


def _all_others(group: Sequence[MeasuredRow], adjustable: Adjustable) -> float:
    """The error of each row as all others foretell it."""
    measured = [(adjustable(row), row.step_s or 0.0) for row in group]
    return mean_error(foretold(measured, constants_without(group[0]), [_place(row) for row in group]))


def unseen(rows: Sequence[MeasuredRow], adjustable: Adjustable) -> Iterator[str]:
    """Rows of a source that has others in the tables: by default, and with five of those others."""
    fresh = read_table(ROWS / "unseen" / "vtrain_multi.csv", ROWS / "sources.toml").rows
    known = [row for row in rows if row.source == fresh[0].source]
    start, chosen = constants_without(known[0]), [known[i] for i in _suggested(known, adjustable)]
    default, _ = _judged(Fitted(start, (), (), start.sigma, 1.0, 0, 0.0, 0.0, None), fresh, adjustable)
    after, inside = _judged(_fit(chosen, adjustable), fresh, adjustable)
    yield "| source | rows | default | five of the other rows | inside | of the default |"
    yield f"|---|{'---:|' * 5}"
    yield f"| {fresh[0].source} | {len(fresh)} | {default:.1%} | {after:.1%} | {inside:.0%} | {after / default:.2f} |"
    both = [*known, *fresh]
    left = _all_others(both, adjustable)
    yield ""
    yield (
        f"Each of all {len(both)} rows foretold from the {len(both) - 1} others: {left:.1%} are left. "
        f"So much these runs differ from any like them."
    )
    yield ""
    yield left_by_any_constants(both, adjustable)


def left_by_any_constants(rows: Sequence[MeasuredRow], adjustable: Adjustable) -> str:
    """What constants leave that know all rows, and how much of it is in rows that ran slower than these expect."""
    floor, before = _any_constants(rows, adjustable)
    like, slow = [r for r in floor.rests if abs(r) <= FAR], [r for r in floor.rests if r < -FAR]
    num_fast = len(rows) - len(like) - len(slow)
    share = sum(map(abs, slow)) / (sum(map(abs, floor.rests)) or 1.0)
    return (
        f"Any constants, fitted to these {len(rows)} rows themselves, leave at least {floor.error:.1%} of the "
        f"{before:.1%} by default. The best predict {len(like)} rows to {_mean_size(like):.1%}; "
        f"{len(slow)} are predicted more than {FAR:.0%} too fast and {num_fast} too slow. "
        f"{share:.0%} of what is left is in those {len(slow)}: "
        f"what slowed them is in no column of the table ([outliers](measured-rows.md#outliers))."
    )


def _mean_size(numbers: Sequence[float]) -> float:
    """Mean of what they are without their signs; 0 of none."""
    return sum(map(abs, numbers)) / max(1, len(numbers))


def _candidates(group: Sequence[MeasuredRow]) -> range:
    return range(0, len(group), max(1, len(group) // MOST_CANDIDATES))


def _suggested(group: Sequence[MeasuredRow], adjustable: Adjustable) -> Sequence[int]:
    """The rows that `calibrate --suggest` names, which nothing measured goes into."""
    candidates = _candidates(group)
    predicts = [adjustable(group[i]) for i in candidates]
    found = informative(predicts, [_place(group[i]) for i in candidates], constants_without(group[0]), NUM_FITTED)
    return [candidates[i] for i in found]


def _place(row: MeasuredRow) -> Place:
    return place(row.spec, row.recipe, row.strategy)


def _trial(group: Sequence[MeasuredRow], adjustable: Adjustable, chosen: Sequence[int]) -> tuple[float, float, float]:
    """Mean error of the rows that were not chosen, before and after the fit, and the share inside the interval."""
    start = constants_without(group[0])
    others = [row for i, row in enumerate(group) if i not in chosen]
    before = [abs(adjustable(row)(start) / (row.step_s or 0.0) - 1) for row in others]
    return sum(before) / len(before), *_judged(_fit([group[i] for i in chosen], adjustable), others, adjustable)


def _fit(rows: Sequence[MeasuredRow], adjustable: Adjustable) -> Fitted:
    measured = [(adjustable(row), row.step_s or 0.0) for row in rows]
    return fit(measured, constants_without(rows[0]), places=[_place(row) for row in rows])


def _judged(fitted: Fitted, rows: Sequence[MeasuredRow], adjustable: Adjustable) -> tuple[float, float]:
    """Mean error of rows, and the share inside their interval."""
    after, inside = [], []
    for row in rows:
        predict, measured = adjustable(row), row.step_s or 0.0
        low, high = fitted.interval(predict, _place(row))
        after.append(abs(fitted.expected(predict, _place(row)) / measured - 1))
        inside.append(low <= measured <= high)
    return sum(after) / len(after), sum(inside) / len(inside)
