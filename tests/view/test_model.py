from torchledger import spec
from torchledger.formula import parameters
from torchledger.view.model import model_screen, models_table, parameter_table
from torchledger.view.terminal import draw


def test_parameters_stand_to_the_last_one():
    """Full digits, key-value heads beside the heads where they differ."""
    table = models_table([spec.load("llama-3-8b"), spec.load("gpt2")])
    rows = {row.cells[0]: row.cells for row in table.rows}
    assert rows["llama-3-8b"][1] == "8,030,261,248"
    assert "32 (8 kv)" in rows["llama-3-8b"]
    assert "12" in rows["gpt2"]


def test_the_table_of_parameters_sums_to_the_whole():
    """Rows add up to the model; a tied tensor adds nothing and names what it is tied to."""
    table = parameter_table(parameters(spec.load("gpt2")))
    counts = [int(row.cells[4].replace(",", "")) for row in table.rows]
    assert sum(counts[:-1]) == counts[-1] == 124_439_808
    head = next(row for row in table.rows if row.cells[0] == "head.weight")
    assert (head.cells[4], head.cells[7]) == ("0", "embedding.weight")


def test_a_mixture_tells_its_active_parameters():
    """Where a token meets only a part of the model, both numbers are told."""
    assert "active for a token" in draw(model_screen(spec.load("mixtral-8x7b"), ()))
    assert "active" not in draw(model_screen(spec.load("gpt2"), ()))
