"""`Ledger`: sums keep every line, differences are taken account by account, unknown names its line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchledger.ledger import (
    WORK_FIELDS,
    Convention,
    ConventionMismatch,
    Ledger,
    Line,
    Work,
    fold_path,
    total,
)

modules = st.sampled_from(["layers.0.mlp.up", "layers.1.mlp.up", "head", ""])
known = st.integers(0, 10**20)


def lines(amounts):
    """Lines over few places, so that accounts collide."""
    return st.builds(
        Line,
        modules,
        st.sampled_from(["matmul", "addmm", "gelu"]),
        st.builds(Work, *[amounts] * len(WORK_FIELDS)),
        st.sampled_from(["matmul", "pointwise", "embedding", "attention"]),
        st.sampled_from(["forward", "backward", "recompute"]),
        st.sampled_from(["none", "input", "weight"]),
        st.sampled_from(["fp32", "bf16"]),
        st.just((("tokens", 3), ("vocabulary", 5), ("hidden", 2))),
        st.integers(1, 40),
        st.sampled_from(["formula", "trace"]),
    )


few = settings(max_examples=40, deadline=None)  # a ledger is a big thing to draw
conventions = st.builds(
    Convention,
    st.sampled_from(["contractions", "all"]),
    st.sampled_from(["full", "exact", "executed"]),
    st.booleans(),
    st.booleans(),
)
known_ledgers = st.builds(Ledger.of, st.lists(lines(known), max_size=6))
ledgers = st.builds(Ledger.of, st.lists(lines(st.one_of(st.none(), known)), max_size=6))


@few
@given(known_ledgers, known_ledgers)
def test_adding_and_taking_away_gives_back_the_ledger(a, b):
    assert a + b - b == a


@few
@given(known_ledgers, known_ledgers, conventions)
def test_flops_add_and_subtract_under_every_convention(a, b, convention):
    a, b = a.under(convention), b.under(convention)
    assert (a + b).flops == a.flops + b.flops
    assert (a - b).flops == a.flops - b.flops


@few
@given(known_ledgers)
def test_a_ledger_minus_itself_has_no_lines(a):
    assert (a - a).lines == ()


@few
@given(ledgers)
def test_the_parts_sum_to_the_whole(a):
    for names in (("phase",), ("module", "kind"), ("op", "number_format", "gradient_of", "origin")):
        parts = a.by(*names).values()
        assert sum(len(part) for part in parts) == len(a)
        assert total(part.total for part in parts) == a.total


@few
@given(ledgers, st.integers(0, 30))
def test_scaling_scales_the_total(a, n):
    assert (a * n).total == a.total * n
    assert (n * a).total == a.total * n


@few
@given(ledgers)
def test_equal_lines_are_entered_once_with_their_times_added(a):
    doubled = Ledger.of([*a.lines, *a.lines])
    assert len(doubled) == len(a)
    assert doubled.total == a.total * 2


@few
@given(ledgers)
def test_folding_layers_changes_no_total(a):
    folded = a.folded()
    assert folded.total == a.total
    assert not any(part.isdigit() for line in folded for part in line.module.split("."))


@few
@given(ledgers, ledgers)
def test_an_account_unknown_on_either_side_stays_unknown_and_its_line_names_it(a, b):
    unknown = {account for ledger in (a, b) for account, work in ledger.accounts().items() if work.unknown_fields}
    difference = a - b
    assert {line.account for line in difference.unknown_lines} == unknown
    for account in unknown:
        named = [line.name for line in difference.unknown_lines if line.account == account]
        assert all(account[0] in name for name in named)


def test_the_first_unknown_field_makes_flops_unknown_but_not_bytes():
    ledger = Ledger((Line("mlp", "my_op", Work.of_flops(None, bytes_read=4), "unknown"),))
    assert ledger.flops is None
    assert ledger.total.bytes_read == 4
    assert not ledger.is_complete
    assert "incomplete" in repr(ledger)
    assert [line.name for line in ledger.unknown_lines] == ["mlp my_op forward fp32"]


def test_an_unknown_pointwise_line_does_not_spoil_a_count_of_contractions():
    ledger = Ledger(
        (
            Line("mlp", "my_gelu", Work.of_flops(None), "pointwise"),
            Line("mlp", "matmul", Work.of_flops(6), "matmul"),
        )
    )
    assert ledger.flops == 6
    assert ledger.under(Convention(operations="all")).flops is None


def test_a_fused_kernel_and_its_three_parts_cancel_in_one_account():
    fused = Ledger((Line("core", "attention", Work.of_flops(30), "attention", origin="trace"),))
    parts = Ledger(tuple(Line("core", op, Work.of_flops(10), "attention") for op in ("a", "b", "c")))
    assert (fused - parts).lines == ()


def test_a_difference_line_keeps_sign_account_and_a_name():
    a = Ledger((Line("head", "matmul", Work.of_flops(10), "matmul", "backward", "weight", "bf16"),))
    b = Ledger((Line("head", "addmm", Work.of_flops(16), "matmul", "backward", "weight", "bf16", origin="trace"),))
    (line,) = (a - b).lines
    assert (line.work, line.origin) == (Work.of_flops(10 - 16), "difference")
    assert line.account == a.lines[0].account
    assert line.op == "matmul"


@few
@given(known_ledgers, conventions, conventions)
def test_two_conventions_never_silently_add_or_subtract(a, one, other):
    if one == other:
        assert a.under(one) - a.under(other) == Ledger(convention=one)
        return
    for operation in (lambda x, y: x + y, lambda x, y: x - y):
        with pytest.raises(ConventionMismatch, match="different conventions") as error:
            operation(a.under(one), a.under(other))
        assert one.text in str(error.value)
        assert other.text in str(error.value)


def test_ledgers_under_two_conventions_are_not_equal():
    assert Ledger() != Ledger(convention=Convention(recompute=True))


def test_assumptions_of_both_sides_are_kept_once():
    a, b = Ledger(assumptions=("x", "y")), Ledger(assumptions=("y", "z"))
    assert (a + b).assumptions == (a - b).assumptions == ("x", "y", "z")


def test_where_takes_values_sets_and_a_predicate():
    ledger = Ledger(
        (
            Line("a", "matmul", Work.of_flops(2), "matmul"),
            Line("b", "matmul", Work.of_flops(3), "matmul", "backward"),
            Line("b", "gelu", Work.of_flops(5), "pointwise"),
        )
    )
    assert [line.module for line in ledger.where(kind="matmul")] == ["a", "b"]
    assert [line.op for line in ledger.where(module={"b"}, phase=("forward", "recompute"))] == ["gelu"]
    assert [line.module for line in ledger.where(lambda line: line.work.flops_full > 2, kind="matmul")] == ["b"]
    assert ledger.where(kind="matmul").convention == ledger.convention


def test_grouping_by_module_can_be_cut_to_its_first_components():
    ledger = Ledger(
        tuple(
            Line(module, "matmul", Work.of_flops(2), "matmul")
            for module in ("layers.*.mlp.up", "layers.*.mlp.down", "head")
        )
    )
    assert {module: group.flops for module, group in ledger.by("module", depth=2).items()} == {
        "layers.*": 2 + 2,
        "head": 2,
    }


@pytest.mark.parametrize(
    ("path", "folded"),
    [
        ("layers.0.mlp", "layers.*.mlp"),
        ("12", "*"),
        ("h2.ln1", "h2.ln1"),
        ("a.3.b.44", "a.*.b.*"),
        ("a.1x.2", "a.1x.*"),
    ],
)
def test_only_whole_numbers_in_a_path_are_folded(path, folded):
    assert fold_path(path) == folded


def test_text_and_html_fall_back_to_a_plain_line_where_no_view_is_registered():
    assert "2 FLOPs" in repr(Ledger((Line("a", "matmul", Work.of_flops(2), "matmul"),)))
