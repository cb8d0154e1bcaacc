import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import torchledger.view
from torchledger.ledger import RunRecord
from torchledger.view.page import page, read_page
from torchledger.view.record import RecordFormatError, record_to_dict

VENDOR = Path(torchledger.view.__file__).parent / "vendor"


class Elements(HTMLParser):
    """Collects every element with its attributes."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):  # noqa: D102 - called by the parser
        self.found.append((tag, dict(attrs)))


def elements(html):
    parser = Elements()
    parser.feed(html)
    return parser.found


def test_the_data_comes_back(record):
    """What the page was made from can be read out of it."""
    assert record_to_dict(read_page(page(record))) == record_to_dict(record)


def test_nothing_is_fetched(record):
    """No element names an address, and the policy forbids every fetch."""
    html = page(record)
    for tag, attributes in elements(html):
        assert not {"src", "href", "srcset", "data", "action"} & attributes.keys(), tag
    policy = next(attributes for _, attributes in elements(html) if "http-equiv" in attributes)
    assert policy["content"].startswith("default-src 'none';")
    assert "@import" not in html
    assert "sourceMappingURL=" not in html


def test_a_sample_cannot_end_the_script(record):
    """The model's text stands in the data and on the page, and opens no element."""
    scripts = [attributes for tag, attributes in elements(page(record)) if tag == "script"]
    assert len(scripts) == 2 + 4  # two blocks of data, three bundles and our own
    assert "alert(1)</script>" not in page(record)


def test_the_policy_names_every_script(record):
    """Each script's hash is in the policy, so no other one runs."""
    html = page(record)
    for script in re.findall(r"<script>(.*?)</script>", html, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in html


def test_every_chart_has_its_place(record):
    """A chart's id is an element of the page."""
    html = page(record)
    charts = json.loads(re.search(r'id="torchledger-charts">(.*?)</script>', html, re.DOTALL)[1])
    assert set(charts) == {"chart-loss", "chart-throughput", "chart-mfu", "chart-memory", "chart-parts", "chart-flops"}
    assert set(charts) <= {attributes.get("id") for _, attributes in elements(html)}


def test_a_record_without_curves_has_no_script():
    """Nothing to draw, nothing to run: the page is its tables."""
    html = page(RunRecord("empty", {}, {}, {}))
    assert len(html) < 20_000
    assert "script-src 'none'" in html
    assert read_page(html).name == "empty"


def test_the_verdict_is_in_the_heading(record):
    """One of two quantities is over its tolerance, and the heading says so."""
    assert "The books: 1 of 2 beyond tolerance" in page(record)


def test_another_file_is_no_report():
    """A page of somebody else is refused."""
    with pytest.raises(RecordFormatError, match="not a torchledger report"):
        read_page("<html></html>")


def test_the_bundles_are_as_published():
    """The vendored files have the hashes that VENDORED.txt names, and their licences beside them."""
    rows = re.findall(
        r"^(\S+\.js)\s+(\S+)\s+\S+\s+\S+\s+([0-9a-f]{64})$", (VENDOR / "VENDORED.txt").read_text(), re.MULTILINE
    )
    assert len(rows) == len(list(VENDOR.glob("*.js"))) == 3
    for name, package, digest in rows:
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest
        assert (VENDOR / f"LICENSE-{package}.txt").is_file()
