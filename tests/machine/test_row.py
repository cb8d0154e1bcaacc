import pytest

from torchledger.machine.row import flatten, mistakes_in, to_chip

GOOD = {
    "name": "X 1",
    "kind": "gpu",
    "vendor": "V",
    "architecture": "A",
    "form_factor": "F",
    "dense": {"fp32": 10e12, "bf16": 100e12},
    "confidence": "low",
    "date": "2026-12-01",
    "source": "https://example.com",
    "notes": "",
}
SPARSITY = {"pattern": "2:4", "times_dense": 2, "formats": ["bf16"], "reason": "because"}


def test_a_good_row_has_no_mistakes():
    """The least row that is taken, and what it leaves unknown."""
    assert mistakes_in(GOOD) == []
    chip = to_chip("x-1", GOOD, "own.toml")
    assert (chip.key, chip.family, chip.peak("bf16"), chip.devices_per_chip) == ("x-1", "x-1", 100e12, 1)
    assert (chip.memory_bytes_reported, chip.scale_up, chip.network, chip.tdp_w, chip.year) == (None,) * 5


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        ({"colour": "red"}, "colour: no such field"),
        ({"tpd_w": 5}, "tpd_w: no such field; did you mean tdp_w?"),
        ({"tdp_w": True}, "tdp_w: must be a number above zero, not True"),
        ({"tdp_w": 0}, "tdp_w: must be a number above zero, not 0"),
        ({"year": 2026.5}, "year: must be a whole number above zero, not 2026.5"),
        ({"name": 5}, "name: must be text, not 5"),
        ({"aliases": "x"}, "aliases: must be a list of texts, not 'x'"),
        ({"lacks": [1]}, "lacks: must be a list of texts, not [1]"),
        ({"memory": {"unified": 1}}, "memory.unified: must be true or false, not 1"),
        ({"dense": {"bf16": float("inf")}}, "dense.bf16: must be a number above zero, not inf"),
        ({"link": {"name": "L"}}, "link.bytes_per_s_per_direction: is missing"),
        ({"sparsity": {"pattern": "2:4", "times_dense": 2, "reason": "r"}}, "sparsity.formats: is missing"),
        ({"confidence": "sure"}, "confidence: 'sure' is none of high, medium, low"),
        (
            {"quoted": [5]},
            "quoted[0]: needs what (a field of the row), value (a number) and by (who says it), not 5",
        ),
    ],
)
def test_each_mistake_is_named_with_its_field(change, mistake):
    """One slip, one line that says where and what."""
    assert mistakes_in(GOOD | change) == [mistake]


@pytest.mark.parametrize("field", ["name", "kind", "vendor", "confidence", "date", "source", "notes"])
def test_a_row_needs_its_provenance(field):
    """Without source, date, confidence and notes a row is not taken."""
    assert mistakes_in({name: value for name, value in GOOD.items() if name != field}) == [f"{field}: is missing"]


def test_sparse_figures_come_from_the_file_and_only_where_it_says():
    """bf16 is doubled because the table names it; fp32 is not."""
    chip = to_chip("x", GOOD | {"sparsity": SPARSITY}, "own.toml")
    assert [(peak.number_format, peak.sparse_flops_per_s) for peak in chip.peaks] == [
        ("fp32", None),
        ("bf16", 2 * 100e12),
    ]


def test_a_sparse_figure_of_the_row_comes_first():
    """A vendor's own figure beats the rule."""
    chip = to_chip("x", GOOD | {"sparsity": SPARSITY, "sparse": {"bf16": 150e12}}, "own.toml")
    assert chip.peak_row("bf16").sparse_flops_per_s == 150e12


def test_reported_memory_is_in_mib():
    """The driver's number is in MiB, the field in bytes."""
    chip = to_chip("x", GOOD | {"memory": {"reported_mib": 100}}, "own.toml")
    assert chip.memory_bytes_reported == 100 * 2**20


def test_a_table_in_the_place_of_a_value_is_a_mistake():
    """`dense = 5` is no peak."""
    assert "dense: no such field" in mistakes_in(GOOD | {"dense": 5})[0]
    assert flatten({"dense": 5}) == {"dense": 5}
