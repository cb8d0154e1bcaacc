import subprocess
import sys

import pytest

from torchledger.machine import BadRow, catalog, get, list_chips, match, parse_cluster

OWN = """
[file]
vendor = "Acme"
date = "2026-12-01"

[acme-1]
name = "Acme 1"
aliases = ["acme", "roadrunner"]
kind = "accelerator"
architecture = "Anvil"
form_factor = "box"
dense.bf16 = 5e12
confidence = "low"
source = "https://example.com/acme"
notes = "falls from a height"

[h100-capped]
extends = "h100-sxm"
name = "H100 capped at 500 W"
vendor = "NVIDIA"
tdp_w = 500
measured.bf16 = 700e12
measured_source = "our own matmul"
confidence = "medium"
source = "https://example.com/power"
notes = ""
"""


@pytest.fixture
def own(tmp_path):
    """A catalog with one file of the user's."""
    file = tmp_path / "own.toml"
    file.write_text(OWN)
    return catalog.load(extra_files=[file])


def test_a_row_of_the_users_is_found_by_all_its_names(own):
    """Own chips are asked for like any other, with fields shared by the file filled in."""
    chip = get("roadrunner", catalog=own)
    assert chip == get("Acme 1", catalog=own) == match("Acme Acme-1", catalog=own)
    assert (chip.peak("bf16"), chip.vendor, chip.date, chip.file) == (5e12, "Acme", "2026-12-01", "own.toml")
    assert parse_cluster("acmex4", catalog=own).num_chips == 4


def test_a_row_may_extend_another(own):
    """What the row does not say comes from the other one; names and provenance never do."""
    capped, h100 = get("h100-capped", catalog=own), get("h100")
    assert (capped.tdp_w, capped.source, capped.aliases) == (500, "https://example.com/power", ())
    assert capped.peak_row("bf16").measured_flops_per_s == 700e12
    assert capped.measured_source == "our own matmul"
    assert capped.peak_row("bf16").sparse_flops_per_s == h100.peak_row("bf16").sparse_flops_per_s
    assert (capped.scale_up, capped.memory_bytes_reported) == (h100.scale_up, h100.memory_bytes_reported)
    assert get("h100", catalog=own) == h100


def test_the_packages_own_catalog_is_not_changed(own):
    """Loading files changes no other catalog."""
    with pytest.raises(ValueError, match="roadrunner"):
        get("roadrunner")


def test_a_row_with_a_known_key_replaces_it(tmp_path):
    """The user's H100 answers to every name of the H100 and is listed once."""
    file = tmp_path / "own.toml"
    file.write_text(
        '[h100-sxm]\nextends = "h100-sxm"\ntdp_w = 650\nconfidence = "low"\n'
        'date = "2026-12-01"\nsource = "https://example.com"\nnotes = ""\n'
    )
    loaded = catalog.load(extra_files=[file])
    assert get("NVIDIA H100 80GB HBM3", catalog=loaded).tdp_w == 650
    assert [chip.tdp_w for chip in list_chips(loaded) if chip.key == "h100-sxm"] == [650]
    assert len(list_chips(loaded)) == len(list_chips())


def test_a_later_file_wins_and_may_extend_an_earlier_one(tmp_path):
    """Files are read in order."""
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text(OWN)
    second.write_text(
        '[acme-1]\nextends = "acme-1"\ndense.fp8 = 10e12\nconfidence = "low"\n'
        'date = "2026-12-02"\nsource = "https://example.com"\nnotes = ""\n'
    )
    chip = get("acme", catalog=catalog.load(extra_files=[first, second]))
    assert (chip.peak("bf16"), chip.peak("fp8"), chip.date) == (5e12, 10e12, "2026-12-02")


def test_a_family_reaches_into_the_users_file(tmp_path):
    """A row of the user's joins the chips of one name, and a size then finds it."""
    file = tmp_path / "own.toml"
    file.write_text(OWN.replace("tdp_w = 500", "memory.bytes_nominal = 64_000_000_000"))
    assert get("H100 64GB", catalog=catalog.load(extra_files=[file])).key == "h100-capped"


def test_every_mistake_of_a_file_is_told_at_once(tmp_path):
    """Five mistakes in one message, each with its file, row and field."""
    file = tmp_path / "bad.toml"
    file.write_text(
        OWN.replace("dense.bf16 = 5e12", "dense.bf61 = 5e12")
        .replace('kind = "accelerator"', 'kind = "toaster"')
        .replace("tdp_w = 500", "tdp_w = -1")
        .replace('source = "https://example.com/power"\n', "")
    )
    with pytest.raises(BadRow) as caught:
        catalog.load(extra_files=[file])
    assert caught.value.mistakes == (
        "bad.toml: [acme-1] dense.bf61: no such field; did you mean dense.bf16?",
        "bad.toml: [acme-1] dense: needs at least one peak, for example dense.bf16 = 989.4e12 (FLOP/s)",
        "bad.toml: [acme-1] kind: 'toaster' is none of gpu, tpu, accelerator, cpu",
        "bad.toml: [h100-capped] tdp_w: must be a number above zero, not -1",
        "bad.toml: [h100-capped] source: is missing",
    )


def test_two_rows_of_a_file_cannot_share_a_name(tmp_path):
    """A name stands for one chip."""
    file = tmp_path / "own.toml"
    file.write_text(OWN.replace('name = "H100 capped at 500 W"', 'name = "acme"'))
    with pytest.raises(BadRow, match=r"\[h100-capped\] aliases: 'acme' is already a name of \[acme-1\]"):
        catalog.load(extra_files=[file])


def test_the_machine_room_is_light():
    """Asking for a chip loads neither torch nor numpy nor the configuration's libraries."""
    code = (
        "import sys; from torchledger import machine; machine.get('h100');"
        "print(sorted({'torch', 'numpy', 'cattrs', 'rich', 'difflib'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_asking_for_one_chip_reads_one_file(monkeypatch):
    """The index names the file, so the others are not parsed."""
    read_files = []
    monkeypatch.setattr(
        catalog, "_builtin_file", lambda name: read_files.append(name) or catalog.read(catalog.DATA / name)
    )
    assert get("NVIDIA H100 80GB HBM3", catalog=catalog.Catalog()).key == "h100-sxm"
    assert set(read_files) == {"nvidia_hopper.toml"}
