import pytest

from torchledger.machine import get
from torchledger.planner import PlanError
from torchledger.planner.price import BadPrices, Price, price_of, read_prices

GOOD = """
[file]
currency = "EUR"
date = 2026-11-01
source = "our contract"

[h100]
price = 2.80

["A100 SXM 80GB"]
price = "$1.10"
source = "the other contract"
"""


def _file(tmp_path, text):
    path = tmp_path / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_gives_prices_by_any_name_of_a_chip(tmp_path):
    """What all rows share stands once; a row's own word goes first; `$1.10` names its own currency."""
    prices = read_prices(_file(tmp_path, GOOD))
    assert price_of(get("h100"), prices) == Price(2.8, "EUR", "2026-11-01", "our contract")
    assert price_of(get("a100"), prices) == Price(1.1, "USD", "2026-11-01", "the other contract")


def test_every_mistake_of_a_file_is_told_at_once(tmp_path):
    """An unknown chip, a price that is none, a field that is none, a missing day and source: one message."""
    text = '[h1oo]\nprice = 2\ndate = 2026-11-30\nsource = "s"\n'
    text += '[h100]\nprice = -2\npirce = 3\n[b200]\nprice = "2 apples"\n'
    with pytest.raises(BadPrices) as caught:
        read_prices(_file(tmp_path, text))
    for words in ("[h1oo] no chip is named", "[h100] price: -2 is no price", "pirce: is no field", "[b200] price"):
        assert any(words in mistake for mistake in caught.value.mistakes)
    assert sum("date: is missing" in mistake for mistake in caught.value.mistakes) == 2
    assert all(mistake.startswith("prices.toml: [") for mistake in caught.value.mistakes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[h100", "is no TOML"),
        ("", "has no chip"),
        ("h100 = 2.8", r"\[h100\] stands outside"),
        ("file = 3\n", "file: must be a table"),
        ('[h100]\nprice=1\ndate="2026-11-30"\nsource="s"\ncurrency=3', "currency: 3 is no text"),
        ('[h100]\nprice=1\ndate="notadate"\nsource="s"', "date: 'notadate' is no day; write the day"),
        ('[file]\ndate="2026-11-30"\nsource="s"\n[h100]\nprice=1\n["H100 SXM"]\nprice=2', "second name of a chip"),
    ],
)
def test_a_file_that_is_none_says_why(tmp_path, text, words):
    """Each thing that can be wrong with the file as a whole has its message."""
    with pytest.raises(BadPrices, match=words):
        read_prices(_file(tmp_path, text))


def test_a_chip_without_a_price_names_those_that_have_one(tmp_path):
    """The message tells what to add, and the flag that does without a file."""
    with pytest.raises(PlanError, match=r"none for B200 SXM \(it has h100-sxm, a100.*--price"):
        price_of(get("b200"), read_prices(_file(tmp_path, GOOD)))


def test_a_price_of_the_command_line_says_so():
    """Without a day and a source a price is `as given`."""
    assert Price(3.0, "EUR").text.endswith("a chip-hour (as given)")
