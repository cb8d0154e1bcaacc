"""What the determinism audit says of what it found: severity, place, the number, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from torchledger.auditor.determinism_data import DataCheck
from torchledger.auditor.determinism_difference import Difference
from torchledger.auditor.determinism_known import Found
from torchledger.auditor.determinism_repeat import NAMES, Repeat
from torchledger.auditor.determinism_run import Run
from torchledger.ledger import Finding

Severity = Literal["error", "warning", "note"]
_WORST_FIRST = ("error", "warning", "note")
_SEED = {
    "torch": "torch.manual_seed(seed)", "numpy": "numpy.random.seed(seed)", "python": "random.seed(seed)",
}  # fmt: skip


def findings_of(
    first: Run,
    tried: Iterable[Repeat],
    data: Iterable[DataCheck],
    known: tuple[str, Iterable[Found]],
) -> tuple[Finding, ...]:
    """All findings, worst first.

    Args:
        first: the run that others were compared with.
        tried: the others.
        data: trials of the data.
        known: the device, and what is documented for it among the run's operations.
    """
    data = tuple(data)
    # What does not begin alike is told by the data's own trials, with more of the reason.
    told = any(not check.is_same for check in data)
    found = [
        *(
            each
            for repeat in tried
            if not (
                repeat.is_same or (told and repeat.kind != "process" and not repeat.difference and not repeat.failed)
            )
            for each in _of_repeat(repeat)
        ),
        *(each for check in data if not check.is_same for each in _of_data(check)),
        *_of_random(first),
        *(_of_known(each, known[0]) for each in known[1]),
    ]
    return tuple(sorted(found, key=lambda each: _WORST_FIRST.index(each.severity)))


def _finding(severity: Severity, place: str, message: str, remedy: str, **evidence: Any) -> Finding:
    return Finding("determinism", severity, place, message, remedy, evidence)


def _of_repeat(repeat: Repeat) -> Iterator[Finding]:
    severity: Severity = {"threads": "note", "stream": "warning"}.get(repeat.kind, "error")  # type: ignore[assignment]  # texts of a dict
    if repeat.begins:
        yield _finding(
            severity, repeat.begins, f"{repeat.trial}, {repeat.begins} begins with other values",
            "Draw weights from torch's global generator or one that the seed is given to, in an order that is fixed",
            parameter=repeat.begins,
        )  # fmt: skip
    elif repeat.batch is not None:
        yield _finding(
            severity, f"batch {repeat.batch}", f"{repeat.trial}, batch {repeat.batch} is another one",
            "Give the loader a generator that is seeded: generator=torch.Generator().manual_seed(seed)",
            batch=repeat.batch,
        )  # fmt: skip
    elif repeat.failed:
        yield _finding(
            severity, "uninitialised memory", f"{repeat.trial}, {repeat.failed}",
            "Write memory before it is read: torch.zeros instead of torch.empty",
        )  # fmt: skip
    elif repeat.difference is not None:
        message, remedy = _said(repeat, repeat.difference)
        seen = repeat.difference.seen
        evidence = {
            "operation": seen.op, "number": repeat.difference.number, "phase": seen.phase, "module": seen.module,
            "source": seen.source, "loss_difference": repeat.loss_difference,
        }  # fmt: skip
        if repeat.difference.apart is not None:
            apart = repeat.difference.apart
            evidence |= {
                "num_different": apart.num_different, "num_elements": apart.num_elements,
                "largest": apart.largest, "relative": apart.relative,
            }  # fmt: skip
        yield _finding(severity, _place(repeat.difference), message, remedy, **evidence)


def _place(difference: Difference) -> str:
    seen = difference.seen
    return " at ".join(part for part in (seen.module, seen.source) if part) or seen.op


def _said(repeat: Repeat, at: Difference) -> tuple[str, str]:
    """What is said of a difference, and what to do, by the trial and by how runs part."""
    head = f"{repeat.trial}, {_name(at)} ({at.seen.phase}) is the first of {at.num_operations:,} operations to differ"
    if repeat.kind == "threads":
        return (
            f"{head}: sums are cut among threads",
            "Keep torch.set_num_threads the same where runs have to be equal",
        )
    if repeat.kind == "filled":
        return (
            f"{head}, and the loss with it: memory is read that nobody wrote",
            "Write memory before it is read: torch.zeros instead of torch.empty, or fill all of it",
        )
    if repeat.kind == "stream":
        return (
            f"{head}: the step draws from that stream, and seeding torch alone does not repeat it",
            "Seed torch, NumPy and Python together before each step (a resumed run draws the same), or draw with torch",
        )
    how, remedy = _parts(at)
    if repeat.kind == "process" and at.how in {"order", "unknown"}:
        remedy = (
            "Look for the order of a set or of hashes (go over sorted(...)), for what is drawn as a module is "
            "imported, and for time or addresses: they are others in each process"
        )
    return f"{head}: {how}", remedy


def _name(at: Difference) -> str:
    name = at.seen.op.removeprefix("aten.").removesuffix(".default")
    return {"lift_fresh": "torch.from_numpy or torch.tensor"}.get(name, name)


def _parts(at: Difference) -> tuple[str, str]:
    if at.how == "order":
        ran = [f"{each.op} of {each.module or 'no module'}" if each else "nothing" for each in (at.one, at.other)]
        return f"once {ran[0]} runs there, once {ran[1]}", (
            "Let what runs hang on the step and its seed alone: not on an unseeded draw, a set's order or the clock"
        )
    if at.how == "argument":
        assert at.one is not None, "both ran"
        assert at.other is not None, "as above"
        return f"it is called with ({at.one.arguments}), then with ({at.other.arguments})", (
            "Draw such numbers from a generator that is seeded with the run; a clock, an address, or a counter outside "
            "the model is another each time"
        )
    if at.how == "data":
        return f"it is given other values, though every operation before it made the same{_amount(at)}", (
            "They come from NumPy, Python, a set's order or a file: draw with torch, or from a generator that the seed "
            "is given to (numpy.random.default_rng(seed)), and go over sorted(...) instead of a set"
        )
    if at.drew:
        return f"it draws other numbers, though every global stream was seeded{_amount(at)}", (
            "Seed its generator with the run: generator.manual_seed(seed)"
        )
    if at.how == "result":
        return f"of equal values it makes other results{_amount(at)}", (
            "torch.use_deterministic_algorithms(True) takes another kernel or refuses it; in code of your own, add in "
            "an order that is fixed"
        )
    said = "it makes other results" + ("" if at.repeats is None else ", which two more runs did not repeat")
    return (
        said,
        "A race shows now and then: run the audit with more repeats, and torch.use_deterministic_algorithms(True)",
    )


def _amount(at: Difference) -> str:
    if at.apart is None:
        return ""
    far = "" if at.apart.largest is None else f", by {at.apart.largest:.3g} at most"
    return f"; {at.apart.num_different:,} of {at.apart.num_elements:,} elements differ{far}"


def _of_data(check: DataCheck) -> Iterator[Finding]:
    if check.parameter:
        yield _of_weights(check)
    if check.first_batch is None:
        return
    place = check.told or "batches"
    evidence = {"trial": check.trial, "first_batch": check.first_batch, "streams": check.streams}
    streams = " and ".join(NAMES[stream] for stream in check.streams) or "the global streams together"
    seed = "; ".join(_SEED[stream] for stream in check.streams)
    if check.trial == "again":
        message = f"batch {check.first_batch}, asked for again, is another one"
        remedy = "Make batch n a function of a seed and n alone"
        yield _finding("error", place, message, remedy, **evidence)
    elif check.trial == "rebuilt":
        message = f"made anew from the same seed, batch {check.first_batch} is another one: the order is not seeded"
        remedy = "Give the loader a generator that is seeded: generator=torch.Generator().manual_seed(seed)"
        yield _finding("error", place, message, remedy, **evidence)
    elif check.trial == "after other draws":
        message = (
            f"batch {check.first_batch} is another one when something else draws from the global stream of {streams} "
            "first: the order of the data hangs on every other draw"
        )
        remedy = "Give the loader a generator of its own: generator=torch.Generator().manual_seed(seed)"
        yield _finding("warning", place, message, remedy, **evidence)
    elif check.trial == "another seed":
        message = f"batch {check.first_batch} hangs on the global stream of {streams}, which its seed does not set"
        remedy = f"Seed it where the data is made ({seed or 'all three streams'}), or draw from a generator of its own"
        yield _finding("warning", place, message, remedy, **evidence)
    else:
        message = (
            f"batch {check.first_batch} is another one with {check.num_workers} worker processes than with none: the "
            "data hangs on how many there are"
        )
        remedy = (
            "Let each sample hang on its index alone: seed by index in the dataset, and split an IterableDataset by "
            "torch.utils.data.get_worker_info()"
        )
        yield _finding("warning", place, message, remedy, num_workers=check.num_workers, **evidence)


def _of_weights(check: DataCheck) -> Finding:
    streams = " and ".join(NAMES[stream] for stream in check.streams)
    if check.trial == "rebuilt":
        message = f"made anew from the same seed, {check.parameter} begins with other values"
        remedy = (
            "Draw weights from torch's global generator or one that the seed is given to, in an order that is fixed"
        )
    else:
        message = (
            f"{check.parameter} begins with values from the global stream of {streams}, which its seed does not set"
        )
        remedy = f"Seed it where the model is made: {'; '.join(_SEED[stream] for stream in check.streams)}"
    severity: Severity = "error" if check.trial == "rebuilt" else "warning"
    return _finding(severity, check.parameter, message, remedy, trial=check.trial, streams=check.streams)


def _of_random(first: Run) -> Iterator[Finding]:
    if not first.drew:
        return
    drawing = [first.seen[number] for number in first.drew]
    modules = list(dict.fromkeys(each.module for each in drawing if each.module))
    names = ", ".join(dict.fromkeys(each.op.removeprefix("aten.").partition(".")[0] for each in drawing))
    yield _finding(
        "note", ", ".join(modules[:3]) + (" ..." if len(modules) > 3 else "") or drawing[0].op,
        f"{len(drawing)} operations draw random numbers ({names}): they repeat because the audit seeded them",
        "Seed torch, NumPy and Python before each step by its number, so that a resumed run draws the same",
        num_operations=len(drawing),
    )  # fmt: skip


def _of_known(found: Found, device: str) -> Finding:
    does = {
        "alternative": "torch.use_deterministic_algorithms(True) takes a kernel that repeats",
        "refuses": "torch.use_deterministic_algorithms(True) refuses it: no kernel of it repeats, take another way",
    }
    place = " at ".join(part for part in (found.first.module, found.first.source) if part) or found.first.op
    times = f"{found.times} time{'s' if found.times > 1 else ''}"
    return _finding(
        "note", place, f"known not to repeat on {device}: {found.known.what} ({found.first.op}, {times})",
        does[found.known.mode], times=found.times, operation=found.first.op, modules=found.modules,
    )  # fmt: skip
