import pytest

from torchledger.machine import describe, get, list_chips


def facts(name):
    return {fact.what: fact for fact in describe(get(name))}


def test_the_dense_peak_stands_beside_the_sparse_one():
    """H100 bf16: 989.4 TFLOP/s dense, 1,979 with 2:4 sparsity."""
    bf16 = facts("h100")["bf16 peak"]
    assert (bf16.value, bf16.unit) == (989.4e12, "FLOP/s")
    assert round(bf16.sparse / 1e12) == 1979
    assert "2:4" in bf16.note


def test_memory_is_described_both_ways():
    """Nominal 80e9 bytes, reported 81,559 MiB."""
    h100 = facts("h100")
    assert h100["memory, nominal"].value == 80e9
    assert h100["memory, reported"].value == 81559 * 2**20


def test_unknown_facts_are_rows_too():
    """What nobody knows is shown as unknown, not left out."""
    a30 = facts("a30")
    assert a30["memory, reported"].value is None
    assert a30["typical network"].value is None
    assert facts("m1")["scale-up link"].value is None


def test_integers_are_operations_not_flops():
    """int8 is counted in op/s."""
    assert facts("h100")["int8 peak"].unit == "op/s"


def test_other_figures_in_print_are_described():
    """Who prints what stands in the row's note."""
    lecture = facts("h100")["dense.bf16 in print"]
    assert (lecture.value, lecture.unit) == (989.5e12, "FLOP/s")
    assert "1979e12 / 2" in lecture.note
    assert facts("b200")["memory.bytes_per_s in print"].unit == "B/s"


def test_what_a_chip_cannot_run_is_described():
    """V100: no bf16."""
    assert facts("v100")["bf16 peak"].note == "the chip does not run it"


def test_a_measured_matmul_names_its_source():
    """The figures are from a book whose licence asks for its name."""
    measured = facts("h100")["bf16 largest matmul"]
    assert measured.value == 794.5e12
    assert "ML Engineering" in measured.note
    assert "CC BY-SA" in measured.note


def test_a_slow_pair_is_described():
    """MI300X: what one peer gets is a row of its own; a 4090 has no peers."""
    assert facts("mi300x")["scale-up link, to one peer"].value == 64e9
    assert "no peer to peer" in facts("4090")["scale-up link"].note


@pytest.mark.parametrize("chip", list_chips(), ids=lambda chip: chip.key)
def test_provenance_comes_last(chip):
    """Every description ends in confidence, source, date and notes."""
    rows = describe(chip)
    assert [row.what for row in rows[-4:]] == ["confidence", "source", "date", "notes"]
    assert [row.value for row in rows[-4:]] == [chip.confidence, chip.source, chip.date, chip.notes]
