import pytest

from torchledger.machine import BadRow
from torchledger.machine.catalog_file import read


def test_a_file_that_is_no_toml_says_where(tmp_path):
    """The line of the syntax error is in the message."""
    file = tmp_path / "broken.toml"
    file.write_text('[x]\nname = "unfinished\n')
    with pytest.raises(BadRow, match=r"broken\.toml: is no TOML: .*line 2"):
        read(file)


def test_a_value_outside_any_row_is_a_mistake(tmp_path):
    """A file is rows; something loose is a slip."""
    file = tmp_path / "loose.toml"
    file.write_text("tdp_w = 5\n")
    with pytest.raises(BadRow, match="tdp_w: stands outside any"):
        read(file)


def test_what_rows_share_is_a_table(tmp_path):
    """`file` is for the fields that all rows share."""
    file = tmp_path / "shared.toml"
    file.write_text("file = 5\n")
    with pytest.raises(BadRow, match="must be a table of what all rows share"):
        read(file)


def test_a_row_can_only_extend_what_exists(tmp_path):
    """An unknown key in `extends` is named."""
    file = tmp_path / "lost.toml"
    file.write_text('[x]\nextends = "nobody"\n')
    with pytest.raises(BadRow, match=r"\[x\] extends: no row has the key 'nobody'"):
        read(file)


def test_a_row_under_another_key_needs_its_own_name_and_provenance(tmp_path):
    """The other row's name and source do not pass to a changed copy."""
    file = tmp_path / "copy.toml"
    file.write_text(
        '[a]\nname = "A"\nkind = "gpu"\nvendor = "V"\narchitecture = "X"\nform_factor = "F"\ndense.bf16 = 1e12\n'
        'confidence = "low"\ndate = "2026-12-01"\nsource = "https://example.com"\nnotes = ""\n\n[b]\nextends = "a"\n'
    )
    with pytest.raises(BadRow) as caught:
        read(file)
    assert caught.value.mistakes == tuple(
        f"copy.toml: [b] {field}: is missing" for field in ("name", "confidence", "date", "source", "notes")
    )
