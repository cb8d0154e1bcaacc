"""What tests ask of a run's folder and of what it told."""

from torchledger.trainer.loop import resume_point, train
from torchledger.trainer.metrics import read_metrics
from torchledger.trainer.setup import resolve


def names(folder):
    """What is in a folder, hidden things too."""
    return sorted(path.name for path in folder.iterdir())


def told(events):
    """What was told, in order: s3 is step 3, e3 the evaluation after three updates."""
    return [f"{type(e).__name__[:2].lower()}{getattr(e, 'step', '')}" for e in events]


def figures(folder):
    """Every loss and text of a run by kind and step, without the times."""
    return {
        (row["kind"], row["step"]): row.get("loss", row.get("validation_loss", row.get("text")))
        for row in read_metrics(folder.metrics_path)
        if row["kind"] != "checkpoint"
    }


def resume(folder, **options):
    setup = resolve(folder.config())
    return list(train(setup, folder, checkpoint=resume_point(folder), **options))


def losses(folder):
    """Training losses by step."""
    return {row["step"]: row["loss"] for row in read_metrics(folder.metrics_path) if row["kind"] == "step"}
