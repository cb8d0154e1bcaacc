"""`Line`: a cost with its place."""

from torchledger.ledger import CONTRACTIONS, Line, Work

LINE = Line(
    "layers.*.mlp.up", "matmul", Work.of_flops(8, bytes_kept=3), "matmul", "backward", "weight", "bf16", times=4
)


def test_the_account_is_place_direction_kind_and_format():
    assert LINE.account == ("layers.*.mlp.up", "backward", "weight", "matmul", "bf16")


def test_op_origin_source_shape_and_times_do_not_change_the_account():
    other = Line(
        LINE.module,
        "addmm",
        Work(),
        "matmul",
        "backward",
        "weight",
        "bf16",
        shape=(("m", 2),),
        times=9,
        origin="trace",
        source="model.py:3",
    )
    assert other.account == LINE.account


def test_the_total_is_the_work_of_all_times():
    assert LINE.total == Work.of_flops(4 * 8, bytes_kept=4 * 3)


def test_repeating_multiplies_times_and_leaves_the_work_of_one():
    repeated = LINE.repeated(3)
    assert (repeated.times, repeated.work) == (3 * 4, LINE.work)


def test_the_name_says_where_what_when_and_in_which_format():
    assert LINE.name == "layers.*.mlp.up matmul backward/weight bf16"
    assert Line("", "adamw", Work(), "optimizer", "optimizer").name == "(step) adamw optimizer fp32"


def test_softmax_and_optimizer_are_no_contractions():
    assert {"matmul", "attention", "convolution"} == CONTRACTIONS
