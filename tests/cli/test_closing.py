from torchledger.cli.closing import spike_findings


def test_a_spike_is_in_the_books():
    """One finding each, with what rose, from where, and the checkpoint to go back to."""
    spike = {"kind": "spike", "step": 7, "quantity": "loss", "value": 9.0, "usual": 2.0, "score": 12.5}
    rows = [{"kind": "step", "step": 7}, {**spike, "checkpoint": "c/6"}, {**spike, "step": 9, "checkpoint": None}]
    first, second = spike_findings(rows)
    assert first.message == "the loss rose to 9.0000 at step 7, usually 2.0000; training went on"
    assert (first.place, first.remedy) == ("step 7", "the checkpoint before it is c/6")
    assert (second.place, second.remedy) == ("step 9", "")
