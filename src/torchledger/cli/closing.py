"""Closing the books: predicted against measured, quantity by quantity, and everything into the run folder."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchledger.cli.measurement import Measurement
from torchledger.cli.prediction import Prediction, bytes_sent
from torchledger.cli.runs import REPORT_NAME, write_books
from torchledger.ledger import Difference, Finding, RunRecord, to_json
from torchledger.trainer import read_metrics
from torchledger.trainer.durable import write_text
from torchledger.trainer.events import Finished
from torchledger.trainer.run_folder import RunFolder
from torchledger.view.page import page

#: A model has learned something when it predicts better than a guess that ignores context, by this many nats.
LEARNED_NAT = 1.0


def close(prediction: Prediction, measured: Measurement, finished: Finished) -> tuple[Difference, ...]:
    """The closing table.

    FLOPs and tensor bytes must agree to the last one; seconds within 25 %; the loss at step 0 within 2 % of
    ln(vocabulary), which a model that has learned nothing must have. Where gloo makes copies, which are not predicted,
    peaks have no tolerance; nor do peak and seconds where layers are compiled, which is predicted of neither.
    """
    told = prediction.figures
    is_whole = prediction.setup.device.type == "cpu" and not prediction.copies_of_gloo
    exact = 0 if prediction.setup.ranks.is_alone else 1e-4  # DDP frees a number or two in a thread of its own
    flops = measured.ledger.flops
    peak = prediction.peak_flops_per_s
    mfu = None if finished.step_s is None or not peak or flops is None else flops / (finished.step_s * peak)
    rows: tuple[Difference, ...] = (
        Difference("step_flops", "FLOP", told["step_flops"], flops, 0, "formula; every operation that ran"),
        Difference(
            "peak_tensor_bytes",
            "B",
            told["peak_tensor_bytes"],
            measured.peak_tensor_bytes,
            None if prediction.copies_of_gloo else 0,
            "fake; real tensors, those of gloo too" if prediction.copies_of_gloo else "fake; real tensors",
        ),
        Difference(
            "peak_bytes", "B", told["peak_bytes"], measured.peak_bytes, exact if is_whole else None, measured.how
        ),
        _step_s(told, finished.step_s),
        Difference("tokens_per_s", "token/s", told["tokens_per_s"], finished.tokens_per_s, None, "follows from step_s"),
        Difference("mfu", "1", told["mfu"], mfu, None, "of the matmul peak measured here; follows from step_s"),
        _initial_loss(told["initial_loss"], finished.initial_loss),
    )
    if prediction.setup.compiled != "no":
        rows = tuple(map(_of_compiled, rows))
    if prediction.setup.ranks.is_alone:
        return rows
    sent = bytes_sent(measured.ledger)
    note = "formula; every collective that ran, by a ring"
    return (*rows, Difference("communication_bytes", "B", told["communication_bytes"], sent, 0, note))


def _of_compiled(row: Difference) -> Difference:
    """A row of a run with compiled layers, which claims no more than was looked at."""
    if row.quantity in {"step_flops", "peak_tensor_bytes"}:
        return replace(row, note=f"{row.note}, layers not compiled")
    if row.quantity in {"peak_bytes", "step_s"}:
        return replace(row, tolerance=None, note=f"{row.note}; predicted of layers not compiled")
    return row


def _step_s(told: Mapping[str, Any], measured: float | None) -> Difference:
    """Seconds of a step; unknown ones are held against nothing."""
    if told["step_s"] is None:
        ops = ", ".join(told["untimed_ops"])
        return Difference("step_s", "s", None, measured, None, f"no time was known for {ops}; median step")
    return Difference("step_s", "s", told["step_s"], measured, 0.25, f"{told['step_s_by']}; median step")


def _initial_loss(predicted: float | None, measured: float | None) -> Difference:
    if predicted is None:
        return Difference("initial_loss", "nat", None, measured, None, "of the initial weights, which nothing predicts")
    return Difference("initial_loss", "nat", predicted, measured, 0.02, "ln(vocabulary)")


def findings(
    prediction: Prediction, measured: Measurement, metrics: Sequence[Any], finished: Finished
) -> tuple[Finding, ...]:
    """What the books have to say beyond the table."""
    found = []
    first = [row["loss"] for row in metrics if row["kind"] == "step" and row["step"] < len(measured.losses)]
    if first != list(measured.losses)[: len(first)]:
        found.append(
            Finding(
                "determinism",
                "warning",
                "step 0",
                f"the measured steps' losses {list(measured.losses)} are not the run's {first}",
                "another process or thread count may have changed the kernels' order of summation",
            )
        )
    unigram = prediction.setup.data.validation_unigram_loss_nats
    if unigram is not None:
        found.append(_learning(unigram, finished.validation_loss))
    found.extend(spike_findings(metrics))
    found.extend(
        Finding("warning", "warning", f"step {row['step']}", row["message"])
        for row in metrics
        if row["kind"] == "warning"
    )
    return tuple(found)


def spike_findings(metrics: Sequence[Any]) -> Iterator[Finding]:
    """One finding for each spike that the rows of a run tell of."""
    for row in metrics:
        if row["kind"] == "spike":
            step, rise = row["step"], f"the {row['quantity']} rose to {row['value']:.4f}"
            yield Finding(
                "spike",
                "warning",
                f"step {step}",
                f"{rise} at step {step}, usually {row['usual']:.4f}; training went on",
                f"the checkpoint before it is {row['checkpoint']}" if row["checkpoint"] else "",
                {"score": row["score"]},
            )


def _learning(unigram: float, validation_loss: float) -> Finding:
    """Whether the run beats the knowledge of how often each token occurs, both on the validation tokens.

    The entropy of all tokens is no such loss: the validation tokens may be the easier ones, or the harder.
    """
    gain = unigram - validation_loss
    has_learned = gain >= LEARNED_NAT
    where = "below" if gain >= 0 else "above"
    return Finding(
        "data",
        "note" if has_learned else "warning",
        "validation",
        f"validation loss ends {abs(gain):.4f} nats {where} that of guessing by how often each token occurs in the "
        f"training data ({validation_loss:.4f} and {unigram:.4f}, both on the validation tokens); "
        f"{'more than' if has_learned else 'not'} the {LEARNED_NAT:.1f} below that shows learning",
        "" if has_learned else "train longer, or with a higher learning rate",
        {"validation_loss": validation_loss, "validation_unigram_loss_nats": unigram},
    )


def close_books(folder: RunFolder, prediction: Prediction, measured: Measurement, finished: Finished) -> RunRecord:
    """Close the books of a run, and write them into its folder, each file whole or not at all.

    `ledger.json` is the prediction by formula, `ledger-trace.json` and `ledger-measured.json` the same step looked at
    and run, so that `compare` can hold any two against each other.

    Returns:
        What was written, as the record that every viewer draws.
    """
    metrics = tuple(read_metrics(folder.metrics_path))
    record = RunRecord(
        name=folder.path.name,
        config=tomllib.loads(folder.config_path.read_text(encoding="utf-8")),
        environment=json.loads(folder.environment_path.read_text(encoding="utf-8")),
        prediction={
            **prediction.figures,
            "unigram_entropy": prediction.setup.data.unigram_entropy_nats,
            "assumptions": list(prediction.assumptions),
        },
        metrics=metrics,
        differences=close(prediction, measured, finished),
        ledger=prediction.ledger,
        memory=memory_record(prediction),
        samples=tuple(row["prompt"] + row["text"] for row in metrics if row["kind"] == "sample"),
        findings=findings(prediction, measured, metrics, finished),
    )
    write_books(folder.path, record)
    for name, ledger in (("trace", prediction.trace.ledger.folded()), ("measured", measured.ledger.folded())):
        write_text(folder.path / f"ledger-{name}.json", to_json(ledger, indent=1) + "\n")
    write_text(folder.path / "machine.json", prediction.profile.to_json() + "\n")
    write_text(folder.path / REPORT_NAME, page(record))
    return record


def memory_record(prediction: Prediction) -> dict[str, Any]:
    """Peak by part, what lives there, what kernels hold, and the curve of the second step."""
    timeline = prediction.trace.timeline
    peak, tensors = prediction.peak, prediction.tensor_peak
    return {
        "peak_bytes": peak.peak_bytes,
        "peak_tensor_bytes": tensors.peak_bytes,
        "free_bytes": prediction.free_bytes,
        "parts_bytes": tensors.by_part(),
        "scratch_bytes": prediction.scratch.beyond_outputs(),
        "outline": [list(point) for point in timeline.outline(600)],
        "marks": dict(timeline.marks),
        "live": [
            {"name": b.name or b.module, "op": b.op, "part": b.part, "shape": list(b.shape), "num_bytes": b.num_bytes}
            for b in tensors.blocks[:30]
        ],
    }
