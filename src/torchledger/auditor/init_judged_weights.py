"""Findings about weights: nothing there, copies, a spread that no scheme has, one layer unlike its siblings."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import torch

from torchledger.auditor.init_matrices import Matrix, as_matrix, role
from torchledger.auditor.init_schemes import LIMIT
from torchledger.auditor.init_signals import Signals
from torchledger.ledger import Finding

_LARGE_GAIN = 8.0  # of one matrix; GPT-3's widest at a spread of 0.02 has 0.02·sqrt(49,152) = 4.4
_UNSCALED_GAIN = 3.0  # where a spread of 1 says that nobody scaled it
_OFF_CENTRE = 0.1  # mean over spread
_UNLIKE = 2.0  # times larger or smaller than its siblings


def judged_weights(matrices: Sequence[Matrix], signals: Signals, *, is_trained: bool) -> Iterator[Finding]:
    """What harms or breaks a run.

    Args:
        matrices: of the model.
        signals: a step of it, its gradients alive.
        is_trained: whether an optimizer has changed them: then their spreads are not judged.
    """
    used = [each for each in matrices if each.use is not None]
    found = [*_not_finite(matrices), *_zero(used, signals)]
    for each in used:
        found += [*_copies(each, signals), *_empty_rows(each)]
    found += [*_same_matrices(used), *_no_gradient(matrices, signals)]
    if not is_trained:
        found += [*_off_centre(used), *_large(used), *_unlike_promised(used), *_unlike_siblings(used)]
    yield from _merged(found)


def _merged(findings: Iterable[Finding]) -> Iterator[Finding]:
    """What differs in nothing but its numbers is told once, with the number of places."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for each in findings:
        words = re.sub(r"\d[\d.,e+-]*", "#", each.message)
        groups.setdefault((each.severity, role(each.place), words), []).append(each)
    for (_, where, _), group in groups.items():
        first = group[0]
        if len(group) == 1:
            yield first
        else:
            places = [each.place for each in group]
            told = f"{first.message} (and {len(group) - 1} more of {where})"
            yield replace(first, message=told, evidence={**first.evidence, "places": places})


def _not_finite(matrices: Iterable[Matrix]) -> Iterator[Finding]:
    for each in matrices:
        if not each.values.is_finite:
            yield _finding("error", each.name, "has values that are infinite or NaN", "initialise it anew")


def _zero(used: Sequence[Matrix], signals: Signals) -> Iterator[Finding]:
    first = next((use.name for use in signals.uses), None)
    reached = first is not None and _moves(signals, first)
    for each in used:
        if not each.values.is_zero:
            continue
        siblings = [m for m in used if m.role == each.role and not m.values.is_zero and m.name != each.name]
        is_stuck = each.gradient_rms == 0
        told = f"all {math.prod(each.shape):,} weights are 0"
        facts = {"num_weights": math.prod(each.shape), "gradient_rms": each.gradient_rms}
        promised = each.promised is not None and each.promised.holds
        if is_stuck:
            yield _finding(
                "error",
                each.name,
                f"{told}, and so is their gradient: they never move",
                "draw it: --try fan_in shows what that does",
                facts,
            )
        elif promised or (not siblings and reached and each.use is not None and each.use.is_joined):
            yield _finding(
                "note",
                each.name,
                f"{told}: the branch begins as if it were not there, and its own gradient "
                f"is {each.gradient_rms or 0:.2g}; what feeds it has none until it has moved",
                "",
                facts,
            )
        else:
            unlike = (
                f", where its {len(siblings)} siblings have {siblings[0].values.sample.std:.3g}" if siblings else ""
            )
            around = "" if reached else "; no gradient reaches the layers before it"
            yield _finding(
                "warning",
                each.name,
                f"{told}{unlike}: nothing passes through it{around}",
                "draw it as the other layers are: --try fan_in shows what that does",
                facts,
            )


def _moves(signals: Signals, name: str) -> bool:
    gradient = signals.gradients.get(name)
    return gradient is None or gradient.rms > 0


def _copies(each: Matrix, signals: Signals) -> Iterator[Finding]:
    rows, columns = each.values.rows, each.values.columns
    if rows.copies:
        facts = {"num_copies": rows.copies, "num_rows": rows.count, "groups": rows.groups}
        which = "; ".join(" = ".join(map(str, group[:6])) for group in rows.groups[:4])
        told = f"{rows.copies:,} of {rows.count:,} {_rows_of(each)} are copies of others, bit for bit (rows {which})"
        gradient = signals.gradient_of.get(each.name)
        if not each.multiplies:
            yield _finding("note", each.name, told, "rows of a table part as soon as each is looked up", facts)
        elif gradient is not None and _alike(as_matrix(gradient, each.use), rows.groups):
            yield _finding(
                "error",
                each.name,
                f"{told}, and so are their gradients: they stay one neuron for ever",
                "draw each row by itself",
                facts,
            )
        else:
            yield _finding("warning", each.name, f"{told}: they begin as one neuron", "draw each row by itself", facts)
    if columns.copies and each.multiplies:
        facts = {"num_copies": columns.copies, "num_columns": columns.count, "groups": columns.groups}
        yield _finding(
            "note",
            each.name,
            f"{columns.copies:,} of {columns.count:,} columns are copies of others: it weighs those inputs alike",
            "draw each column by itself",
            facts,
        )


def _alike(gradient: torch.Tensor, groups: Iterable[tuple[int, ...]]) -> bool:
    """Whether rows of a gradient are the same but for the order of summing."""
    for group in groups:
        rows = gradient[list(group)].double()
        if not bool((rows - rows[0]).norm() <= 1e-4 * rows.norm()):
            return False
    return True


def _empty_rows(each: Matrix) -> Iterator[Finding]:
    rows = each.values.rows
    if each.values.is_zero or not each.multiplies:
        return
    if rows.zeros and not each.is_table:  # the row of padding is 0 on purpose
        yield _finding(
            "warning",
            each.name,
            f"{rows.zeros:,} of {rows.count:,} {_rows_of(each)} are 0: they give their bias and nothing else",
            "draw them",
            {"num_zero_rows": rows.zeros},
        )
    if rows.constants:
        yield _finding(
            "warning",
            each.name,
            f"{rows.constants:,} of {rows.count:,} {_rows_of(each)} are one value "
            "throughout: they give the sum of the input, whatever is in it",
            "draw them",
            {"num_constant_rows": rows.constants},
        )


def _rows_of(each: Matrix) -> str:
    return "neurons" if each.multiplies else "rows"


def _same_matrices(used: Iterable[Matrix]) -> Iterator[Finding]:
    groups: dict[tuple[object, ...], list[Matrix]] = {}
    for each in used:
        sample = each.values.sample
        if sample.std > 0 and math.prod(each.shape) > 4:
            groups.setdefault((each.shape, each.values.fingerprint, sample.std), []).append(each)
    for group in groups.values():
        if len(group) > 1:
            names = ", ".join(each.name for each in group[1:4]) + (" and others" if len(group) > 4 else "")
            yield _finding(
                "warning",
                group[0].name,
                f"is copied, bit for bit, into {len(group) - 1} more: {names}",
                "draw each by itself: copying a layer (copy.deepcopy, nn.TransformerEncoder) copies its values",
                {"num_copies": len(group) - 1},
            )


def _no_gradient(matrices: Sequence[Matrix], signals: Signals) -> Iterator[Finding]:
    gradients = signals.gradients
    still = [name for name, size in gradients.items() if size is not None and size.rms == 0]
    unread = [name for name, size in gradients.items() if size is None]
    has_zero = any(each.values.is_zero for each in matrices)
    if still and not has_zero:
        severity: Literal["note", "warning"] = "warning" if len(still) > len(gradients) / 2 else "note"
        yield _finding(
            severity,
            _names(still),
            f"{len(still)} of {len(gradients)} parameters have a gradient of exactly 0",
            "an expert that no token chose has none; else see where the signal stops",
            {"num_parameters": len(still)},
        )
    if unread:
        yield _finding(
            "note",
            _names(unread),
            f"{len(unread)} of {len(gradients)} parameters get no gradient: the loss does not hang on them",
            "leave them out, or use them",
            {"num_parameters": len(unread)},
        )


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:2]) + (", ..." if len(names) > 2 else "")


def _off_centre(used: Iterable[Matrix]) -> Iterator[Finding]:
    for where, group in _by_role(each for each in used if each.multiplies):
        worst = max(group, key=lambda each: abs(each.values.sample.mean) / (each.values.sample.std or 1))
        sample = worst.values.sample
        if sample.std and abs(sample.mean) > max(_OFF_CENTRE, 6 / math.sqrt(sample.count)) * sample.std:
            fan_in = worst.use.fan_in if worst.use is not None else 1
            yield _finding(
                "warning",
                where,
                f"the mean of its weights is {sample.mean:.3g}, with a spread of "
                f"{sample.std:.3g} ({worst.name}): what its inputs share grows by {fan_in}·{sample.mean:.2g} "
                f"= {fan_in * sample.mean:.3g}",
                "draw it about 0 (torch.randn and not torch.rand)",
                {"mean": sample.mean, "std": sample.std},
            )


def _large(used: Iterable[Matrix]) -> Iterator[Finding]:
    for where, group in _by_role(used):
        gains = [each.gain for each in group if each.gain is not None]
        sample = group[0].values.sample
        if not gains or group[0].use is None:
            continue
        gain, fan_in = statistics.median(gains), group[0].use.fan_in
        is_unscaled = gain >= _UNSCALED_GAIN and any(m.holds and m.scheme.name == "unscaled" for m in group[0].found)
        if gain < _LARGE_GAIN and not is_unscaled:
            continue
        measured = [each.measured_gain for each in group if each.measured_gain is not None]
        seen = f"; measured {statistics.median(measured):.3g}" if measured else ""
        count = f"each of its {len(group)} layers" if len(group) > 1 else "it"
        is_one = "unscaled: " if is_unscaled else ""
        yield _finding(
            "warning",
            where,
            f"{is_one}its std is {sample.std:.3g}, {gain:.3g} times 1/sqrt({fan_in}): {count} makes a signal "
            f"std·sqrt(fan_in) = {sample.std:.3g}·sqrt({fan_in}) = {gain:.3g} times larger{seen}",
            "divide by sqrt(fan_in): --try fan_in (--try kaiming before a ReLU)",
            {
                "std": sample.std,
                "fan_in": fan_in,
                "gain": gain,
                "measured_gain": statistics.median(measured) if measured else None,
                "num_layers": len(group),
            },
        )


def _unlike_promised(used: Iterable[Matrix]) -> Iterator[Finding]:
    for each in used:
        told = each.promised
        if told is None or told.holds or each.values.is_zero:
            continue
        std = each.values.sample.std
        yield _finding(
            "warning",
            each.name,
            f"its std is {std:.4g}, where {told.scheme.name} says {told.std:.4g}: "
            f"{abs(told.errors):.3g} standard errors away",
            "initialise it with the recipe's own scheme",
            {"std": std, "expected_std": told.std, "errors": told.errors},
        )


def _unlike_siblings(used: Iterable[Matrix]) -> Iterator[Finding]:
    for _, group in _by_role(used):
        alive = [each for each in group if each.values.sample.std > 0 and each.shape == group[0].shape]
        if len(alive) < 3:
            continue
        middle = statistics.median(each.values.sample.std for each in alive)
        apart = [each for each in alive if not _is_near(each, middle)]
        # Where more than a few differ it is a rule of depth, and none of them is the odd one out.
        if 0 < len(apart) <= len(alive) // 4 + (len(alive) == 3):
            for each in apart:
                ratio = each.values.sample.std / middle
                if not 1 / _UNLIKE < ratio < _UNLIKE:
                    yield _finding(
                        "warning",
                        each.name,
                        f"its std is {each.values.sample.std:.3g}, {ratio:.3g} times that "
                        f"of its {len(alive) - 1} siblings ({middle:.3g})",
                        "initialise it as they are",
                        {"std": each.values.sample.std, "siblings_std": middle},
                    )


def _is_near(each: Matrix, std: float) -> bool:
    sample = each.values.sample
    return abs(sample.std - std) <= LIMIT * 1.5 * sample.error * max(sample.std, std)


def _by_role(matrices: Iterable[Matrix]) -> Iterator[tuple[str, list[Matrix]]]:
    groups: dict[str, list[Matrix]] = {}
    for each in matrices:
        groups.setdefault(each.role, []).append(each)
    yield from groups.items()


def _finding(
    severity: Literal["error", "warning", "note"], place: str, message: str, remedy: str, evidence: object = None
) -> Finding:
    return Finding("init", severity, place, message, remedy, evidence if isinstance(evidence, dict) else {})
