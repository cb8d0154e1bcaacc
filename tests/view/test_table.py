import pytest

from torchledger.ledger import Ledger, Line, Work
from torchledger.units import format_flops
from torchledger.view.table import footnote, ledger_table


def by_name(table):
    return {row.cells[0]: dict(zip(table.titles, row.cells, strict=True)) for row in table.rows}


@pytest.mark.parametrize("by", ["module", "op", "phase", "kind", "number_format"])
def test_every_table_closes_with_the_whole(ledger, by):
    """Cut by any field, the last row is the ledger's total."""
    table = ledger_table(ledger, by)
    assert table.rows[-1].mark == "total"
    assert by_name(table)["total"]["FLOPs"] == format_flops(ledger.flops)


def _small(text):
    """An amount below a thousand, or below 1 KiB, which is shown to the last one."""
    return int(text.split()[0]) if text else 0


def _work(flops):
    return Work.of_flops(flops, bytes_read=2 * flops, bytes_written=flops, bytes_kept=5 * flops)


NESTED = Ledger.of(
    [
        Line("layers.*", "matmul", _work(1), "matmul", times=2),
        Line("layers.*.mlp", "matmul", _work(2), "matmul"),
        Line("layers.*.mlp.up", "matmul", _work(4), "matmul", "backward", "weight", times=3),
        Line("layers.*.mlp.down", "bmm", _work(8), "matmul", number_format="bf16"),
        Line("layers.*.norm", "rms_norm", Work(bytes_read=16, bytes_kept=3), "normalization"),
        Line("head", "matmul", _work(32), "matmul"),
        Line("", "adamw", Work(bytes_read=64), "optimizer", "optimizer"),
    ]
)


@pytest.mark.parametrize("by", ["module", "op", "phase", "kind", "number_format"])
def test_rows_add_up_to_the_last_one(by):
    """Cut by any field, a column's rows sum to its total."""
    *rows, total = ledger_table(NESTED, by, depth=1).rows
    titles = ledger_table(NESTED, by).titles
    for column, title in enumerate(titles):
        if title not in {by.replace("_", " "), "share"}:
            assert sum(_small(row.cells[column]) for row in rows) == _small(total.cells[column]), title


@pytest.mark.parametrize("depth", [1, 2, 3, None])
def test_rows_below_a_module_add_up_to_it(depth):
    """What a module does beside its children is a row of its own, so that every level of the tree sums."""
    table = ledger_table(NESTED, depth=depth)
    for index, above in enumerate(table.rows[:-1]):
        below = []
        for row in table.rows[index + 1 :]:
            if row.depth <= above.depth:
                break
            below += [row] if row.depth == above.depth + 1 else []
        for column in range(1, len(table.titles)) if below else ():
            if table.titles[column] != "share":
                assert sum(_small(row.cells[column]) for row in below) == _small(above.cells[column]), above.cells[0]


def test_what_a_module_does_itself_is_its_last_row():
    """`layers.*` and its `mlp` run something beside their children; `up` has no children and no such row."""
    assert [(row.cells[0], row.depth) for row in ledger_table(NESTED).rows] == [
        ("layers.*", 0),
        ("mlp", 1),
        ("up", 2),
        ("down", 2),
        ("(itself)", 2),
        ("norm", 1),
        ("(itself)", 1),
        ("head", 0),
        ("(step)", 0),
        ("total", 0),
    ]


def test_phases_are_columns_of_the_module_tree(ledger):
    """2·B·T·D·F forward, twice that backward, three layers of it."""
    B, T, D, F, L = 2, 8, 4, 16, 3
    row = by_name(ledger_table(ledger))["mlp.up"]
    assert row["forward"] == format_flops(L * 2 * B * T * D * F)
    assert row["backward"] == format_flops(2 * L * 2 * B * T * D * F)
    assert row["FLOPs"] == format_flops(3 * L * 2 * B * T * D * F)


def test_chains_of_single_modules_are_one_row(ledger):
    """`layers.*` has no lines of its own and one child chain: it is one row, as is `mlp.up`."""
    table = ledger_table(ledger)
    assert [(row.cells[0], row.depth) for row in table.rows] == [
        ("layers.*", 0),
        ("mlp.up", 1),
        ("mlp_norm", 1),
        ("head", 0),
        ("(step)", 0),
        ("total", 0),
    ]


def test_depth_cuts_the_tree(ledger):
    """At depth 1 only the roots are shown, with everything below them counted in."""
    table = ledger_table(ledger, depth=1)
    assert [row.cells[0] for row in table.rows] == ["layers.*", "head", "(step)", "total"]


def test_ops_are_sorted_by_flops(ledger):
    """The largest operation stands first."""
    assert next(row.cells[0] for row in ledger_table(ledger, "op").rows) == "matmul"


def test_the_convention_stands_below(ledger):
    """No number without its convention."""
    assert ledger.convention.text in footnote(ledger)
    assert "incomplete" not in footnote(ledger)


def test_an_operation_without_a_rule_is_named():
    """An incomplete ledger says so, names the operation and how often it ran, and its total is unknown."""
    ledger = Ledger((Line("a", "mystery", Work(flops_full=None), "unknown", times=3),))
    assert "incomplete: no rule for mystery (3 times)" in footnote(ledger)
    assert by_name(ledger_table(ledger, "op"))["total"]["FLOPs"] == "unknown"


def test_an_empty_ledger_is_a_table_too():
    """Without lines there is a total of nothing, and no division by it."""
    assert by_name(ledger_table(Ledger(), "phase"))["total"]["FLOPs"] == "0"
