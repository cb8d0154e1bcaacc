import pytest

from torchledger.machine import BadRow, index, list_chips


def test_the_index_is_fresh():
    """The index is what the TOML files make; its first line says how to make it anew."""
    assert index.INDEX_FILE.read_text(encoding="utf-8") == index.index_text()


def test_the_index_names_every_row():
    """Every chip is found through the index, in the file that it says."""
    places = set(index.read_index().values())
    assert places == {(chip.file, chip.key) for chip in list_chips()}


def test_a_name_stands_for_one_row():
    """Two rows with one name are a mistake that names both."""
    h100, h200 = (chip for chip in list_chips() if chip.key in {"h100-sxm", "h200-sxm"})
    twin = type(h200)(**{field: getattr(h200, field) for field in h200.__slots__} | {"aliases": ("H100",)})
    with pytest.raises(BadRow, match=r"\[h200-sxm\] aliases: 'H100' is already a name of \[h100-sxm\]"):
        index.names_to_rows([h100, twin])
