from torchledger.cli.closing import _learning, _of_compiled, _step_s, spike_findings
from torchledger.ledger import Difference


def test_a_spike_is_in_the_books():
    """One finding each, with what rose, from where, and the checkpoint to go back to."""
    spike = {"kind": "spike", "step": 7, "quantity": "loss", "value": 9.0, "usual": 2.0, "score": 12.5}
    rows = [{"kind": "step", "step": 7}, {**spike, "checkpoint": "c/6"}, {**spike, "step": 9, "checkpoint": None}]
    first, second = spike_findings(rows)
    assert first.message == "the loss rose to 9.0000 at step 7, usually 2.0000; training went on"
    assert (first.place, first.remedy) == ("step 7", "the checkpoint before it is c/6")
    assert (second.place, second.remedy) == ("step 9", "")


def test_what_was_learned_is_judged_on_the_validation_tokens():
    """The loss is held against that of training frequencies on the same tokens: 4.0719 - 3.4472 = 0.6247 is no nat."""
    little, much, none = _learning(4.0719, 3.4472), _learning(4.0719, 3.0), _learning(4.0719, 4.1719)
    assert little.severity == none.severity == "warning"
    assert much.severity == "note"
    assert (
        "ends 0.6247 nats below that of guessing by how often each token occurs in the training data" in little.message
    )
    assert "(3.4472 and 4.0719, both on the validation tokens); not the 1.0 below" in little.message
    assert "ends 1.0719 nats below" in much.message
    assert "ends 0.1000 nats above" in none.message


def test_of_compiled_layers_the_table_claims_what_was_looked_at():
    """FLOPs stay exact and say of what; peak and seconds, which were told of other kernels, have no tolerance."""
    told = [("step_flops", 0), ("peak_tensor_bytes", 0), ("peak_bytes", 0), ("step_s", 0.25), ("initial_loss", 0.02)]
    rows = [_of_compiled(Difference(quantity, "", 1.0, 1.0, tolerance, "a")) for quantity, tolerance in told]
    assert [row.tolerance for row in rows] == [0, 0, None, None, 0.02]
    assert [row.note for row in rows] == [
        "a, layers not compiled",
        "a, layers not compiled",
        "a; predicted of layers not compiled",
        "a; predicted of layers not compiled",
        "a",
    ]


def test_seconds_that_nobody_knew_are_held_against_nothing():
    """A prediction without a time for some operation has no row that is over, and the row names the operation."""
    row = _step_s({"step_s": None, "untimed_ops": ["matmul"]}, 23.0)
    assert (row.predicted, row.measured, row.tolerance, row.within) == (None, 23.0, None, None)
    assert row.note == "no time was known for matmul; median step"
    assert _step_s({"step_s": 20.0, "step_s_by": "roofline"}, 23.0).within
