from pathlib import Path

from torchledger.trainer.errors import NonFinite, OutOfMemory, ResumeRefused, TrainError


def test_all_are_one_tree_of_value_errors():
    """Whoever catches TrainError catches all of them; all are ValueErrors."""
    assert issubclass(TrainError, ValueError)
    assert all(issubclass(kind, TrainError) for kind in (NonFinite, OutOfMemory, ResumeRefused))


def test_not_a_number_names_the_last_good_checkpoint():
    """The message has quantity, step and checkpoint, or says that there is none."""
    text = str(NonFinite("loss", float("nan"), 7, Path("runs/a/step-5")))
    assert text.startswith("the loss is nan at step 7: training stopped, the last good checkpoint is runs/a/step-5;")
    assert "there is no checkpoint yet" in str(NonFinite("loss", float("inf"), 0, None))


def test_out_of_memory_says_when_how_much_and_what_to_do():
    """The message has the step, the bytes asked for, and three remedies."""
    text = str(OutOfMemory(3, 1024))
    assert "out of memory at step 3 when 1,024 more bytes were asked for" in text
    assert all(remedy in text for remedy in ("accumulation_steps", "recompute", "sequence_length"))
    assert "building the model" in str(OutOfMemory(None, None))
