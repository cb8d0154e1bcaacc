import pytest

from torchledger.ledger import Ledger, display
from torchledger.view import notebook


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(display, "_renderers", {})
    notebook.register()


@pytest.mark.usefixtures("registered")
def test_a_ledger_prints_as_its_table(ledger):
    """Once registered, `print(ledger)` is the module table with its assumptions."""
    assert "layers.*" in str(ledger)
    assert "the toy of the tests" in str(ledger)


@pytest.mark.usefixtures("registered")
def test_a_notebook_gets_html_without_a_script(ledger):
    """The notebook's form is a table, and runs nothing."""
    assert "<table>" in ledger._repr_html_()
    assert "<script" not in ledger._repr_html_()


def test_without_a_renderer_there_is_a_short_form(ledger, monkeypatch):
    """A ledger that nobody draws still says what it is."""
    monkeypatch.setattr(display, "_renderers", {})
    assert str(ledger) == repr(ledger)
    assert ledger._repr_html_() is None
    assert isinstance(ledger, Ledger)
