import pytest

from torchledger.view.amount import named_pairs, show_named


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("peak_bytes", 2**31, "2 GiB"),
        ("step_s", 0.5, "500 ms"),
        ("step_flops", 3e12, "3 TFLOP"),
        ("peak_flops_per_s", 989.4e12, "989.4 TFLOP/s"),
        ("tokens_per_s", 1234.5, "1,234 tokens/s"),
        ("bytes_per_s", 3.35e12, "3.35 TB/s"),
        ("mfu", 0.431, "43.1 %"),
        ("num_parameters", 124439808, "124,439,808"),
        ("tied", True, "True"),
        ("name", "gpt2", "gpt2"),
        ("step_s", None, "unknown"),
    ],
)
def test_the_name_carries_the_unit(name, value, shown):
    """The ending of a name decides how its value is shown."""
    assert show_named(name, value) == shown


def test_nested_names_are_joined_and_lists_left_out():
    """A part below `parts_bytes` is bytes; a curve is no fact."""
    told = {"parts_bytes": {"activations": 1024}, "curve": [1, 2], "seed": 7}
    told |= {"flops_by_phase": {"forward": 1e9}, "seconds_by_kind": {"matmul": 0.5}}
    assert dict(named_pairs(told)) == {
        "parts_bytes.activations": "1 KiB",
        "seed": "7",
        "flops_by_phase.forward": "1 GFLOP",
        "seconds_by_kind.matmul": "500 ms",
    }
