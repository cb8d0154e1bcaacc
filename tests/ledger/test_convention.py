"""`Convention`: which of a line's numbers is read."""

import itertools

import pytest

from torchledger.ledger import HARDWARE_FLOPS, MODEL_FLOPS, Convention, Line, Work

ATTENTION = Line("core", "attention", Work(flops_full=100, flops_exact=60, flops_executed=125), "attention", times=2)
GELU = Line("mlp", "gelu", Work.of_flops(7), "pointwise")
LOOKUP = Line(
    "embedding",
    "embedding",
    Work(bytes_read=1),
    "embedding",
    shape=(("tokens", 3), ("vocabulary", 5), ("hidden", 2)),
    times=4,
)


@pytest.mark.parametrize(("attention", "flops"), [("full", 2 * 100), ("exact", 2 * 60), ("executed", 2 * 125)])
def test_attention_is_read_as_full_square_exact_or_executed(attention, flops):
    assert Convention(attention=attention).flops(ATTENTION) == flops


def test_pointwise_work_counts_only_where_all_operations_do():
    assert Convention().flops(GELU) == 0
    assert Convention(operations="all").flops(GELU) == 7


@pytest.mark.parametrize("operations", ["contractions", "all"])
def test_the_lookup_counts_as_a_one_hot_matmul_where_the_embedding_is_in(operations):
    assert Convention(operations, embedding=True).flops(LOOKUP) == 4 * (2 * 3 * 5 * 2)
    assert Convention(operations, embedding=False).flops(LOOKUP) == 0


def test_a_lookup_without_its_sizes_is_unknown_where_the_embedding_is_in():
    assert Convention(embedding=True).flops(Line("e", "embedding", Work(), "embedding")) is None


def test_recomputed_work_counts_for_hardware_and_not_for_the_model():
    again = Line("mlp", "matmul", Work.of_flops(8), "matmul", "recompute")
    assert MODEL_FLOPS.flops(again) == 0
    assert HARDWARE_FLOPS.flops(again) == 8


def test_an_unknown_matmul_is_unknown_and_not_zero():
    assert Convention().flops(Line("x", "my_op", Work.of_flops(None), "unknown")) is None
    assert Convention().flops(Line("x", "matmul", Work.of_flops(None), "matmul")) is None


def test_every_convention_has_its_own_text():
    texts = [
        Convention(operations, attention, embedding, recompute).text
        for operations, attention, embedding, recompute in itertools.product(
            ("contractions", "all"), ("full", "exact", "executed"), (False, True), (False, True)
        )
    ]
    assert len(set(texts)) == len(texts) == 2 * 3 * 2 * 2
