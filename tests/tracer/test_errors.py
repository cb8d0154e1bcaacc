from torchledger.tracer import TraceError


def test_the_message_names_module_line_and_remedy():
    error = TraceError("no data", module="layers.3", source="net.py:7", remedy="Use shapes")
    assert str(error) == "no data in module `layers.3` at net.py:7. Use shapes"


def test_what_is_not_known_is_left_out():
    assert str(TraceError("no data")) == "no data"
    assert isinstance(TraceError("no data"), ValueError)
