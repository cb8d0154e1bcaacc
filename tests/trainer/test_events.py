from dataclasses import asdict, fields

from torchledger.trainer.events import Step, row_of


def test_a_steps_row_has_every_field():
    """As `asdict` gives it: nothing of a step is nested."""
    event = Step(*range(1, 1 + len(fields(Step))))
    assert row_of(event) == asdict(event)
    assert list(row_of(event).values()) == list(range(1, 1 + len(fields(Step))))
