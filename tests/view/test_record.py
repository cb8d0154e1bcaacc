import json
from dataclasses import replace

import pytest

from torchledger.view.record import RecordFormatError, record_from_json, record_to_dict, record_to_json


def test_a_record_survives_json(record):
    """Everything but what is not finite comes back equal."""
    back = record_from_json(record_to_json(record))
    whole = replace(record, metrics=back.metrics, config=back.config)
    assert record_to_dict(back) == record_to_dict(record)
    assert back.ledger == record.ledger
    assert back.differences == record.differences
    assert back.findings == record.findings
    assert whole.samples == back.samples


def test_not_a_number_becomes_null(record):
    """JSON without NaN, so that every reader can read it."""
    assert "NaN" not in record_to_json(record)
    assert record_from_json(record_to_json(record)).metrics[1]["loss"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "JSON object"),
        ('{"schema": "torchledger.run/99"}', "this version reads"),
        ('{"schema": "torchledger.run/1"}', "missing or wrong"),
    ],
)
def test_what_is_no_record_is_refused(text, message):
    """Each way of being wrong has its message."""
    with pytest.raises(RecordFormatError, match=message):
        record_from_json(text)


def test_a_broken_ledger_inside_is_refused(record):
    """A record whose ledger has another schema names that."""
    data = json.loads(record_to_json(record))
    data["ledger"]["schema"] = "other"
    with pytest.raises(RecordFormatError, match="other"):
        record_from_json(json.dumps(data))
