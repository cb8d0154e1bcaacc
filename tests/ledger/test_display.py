"""How objects find their looks."""

from torchledger.ledger import Ledger, Line, Work, display


def test_an_object_is_drawn_by_the_last_renderer_registered_for_its_type(monkeypatch):
    monkeypatch.setattr(display, "_renderers", {})
    ledger = Ledger((Line("a", "matmul", Work.of_flops(2), "matmul"),))
    assert display.render(ledger, "text") is None
    assert str(ledger) == repr(ledger)
    assert ledger._repr_html_() is None
    display.register(Ledger, "text", lambda _: "first")
    display.register(Ledger, "text", lambda drawn: f"{len(drawn)} lines")
    display.register(Ledger, "html", lambda _: "<table>")
    assert str(ledger) == "1 lines"
    assert ledger._repr_html_() == "<table>"
