"""What papers print about pipeline schedules, from the orders that are run: bubbles, memory, the published tables."""

import pytest

from torchledger.planner.schedule import in_flight, pipeline_time
from torchledger.planner.schedule_cost import ChunkCost
from torchledger.planner.simulation import simulate


def equal(num_stages, forward_s, backward_s, weight_s, num_chunks=1):
    """Equal stages; their chunks share what a stage takes."""
    cost = ChunkCost(*(each / num_chunks for each in (forward_s, backward_s, weight_s)))
    return ((cost,) * num_chunks,) * num_stages


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 64)])
def test_bubble_of_gpipe_and_1f1b(schedule, p, m):
    """The bubble is (p - 1) / m of the computing (arXiv:2104.04473, section 2.2.1)."""
    time = pipeline_time(schedule, equal(p, 1, 1, 1), m)
    assert time.bubble_s[0] / time.busy_s[0] == pytest.approx((p - 1) / m)


@pytest.mark.parametrize(("p", "v", "m"), [(2, 2, 4), (4, 2, 8), (8, 4, 64), (4, 3, 10)])
def test_bubble_of_interleaved(p, v, m):
    """With v chunks it is (p - 1) / (v m) (arXiv:2104.04473, section 2.2.2), other groups than the stages included."""
    time = pipeline_time("interleaved", equal(p, 1, 1, 1, v), m)
    assert time.bubble_s[0] / time.busy_s[0] == pytest.approx((p - 1) / (v * m))


@pytest.mark.parametrize(("f", "b", "w"), [(1, 1, 1), (1, 1.2, 0.8), (1, 2, 0.9)])
@pytest.mark.parametrize("p", [4, 8])
def test_bubbles_of_the_zero_bubble_paper(p, f, b, w):
    """1F1B (p - 1)(F + B + W), ZB-H1 (p - 1)(F + B - W) with W <= B (arXiv:2401.10241, Table 2)."""
    costs = equal(p, f, b, w)
    assert pipeline_time("1f1b", costs, 3 * p).bubble_s[0] == pytest.approx((p - 1) * (f + b + w))
    assert pipeline_time("zero-bubble", costs, 3 * p).bubble_s[0] == pytest.approx((p - 1) * (f + b - w))


def test_zero_bubble_with_long_weight_gradients():
    """Weight gradients longer than input gradients do not help: the way in, (p - 1) F, stays."""
    assert pipeline_time("zero-bubble", equal(4, 1, 0.9, 1.2), 12).bubble_s[0] == pytest.approx((4 - 1) * 1)


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 20), (8, 64)])
def test_the_table_of_deepseek_v3(p, m):
    """Bubbles and activations of Table 2 of arXiv:2412.19437, with F = 1, B = 2 of which W = 1, and F&B = F + B."""
    f, b, w = 1, 2, 1
    one, two = equal(p, f, b - w, w), ((ChunkCost(f, b - w, w),) * 2,) * p
    assert pipeline_time("1f1b", one, m).bubble_s[0] == pytest.approx((p - 1) * (f + b))
    assert pipeline_time("zero-bubble", one, m).bubble_s[0] == pytest.approx((p - 1) * (f + b - 2 * w))
    dualpipe = pipeline_time("dualpipe", two, m).bubble_s[0]
    assert dualpipe == pytest.approx((p // 2 - 1) * ((f + b) + b - 3 * w))
    assert [sum(in_flight(name, p, v, m)[0]) for name, v in (("1f1b", 1), ("zero-bubble", 1), ("dualpipe", 2))] == [
        p,
        p,
        p + 1,
    ]


@pytest.mark.parametrize(("f", "b", "w"), [(1, 1.3, 0.7), (1, 0.9, 1.2), (1.5, 1, 0.8), (0.6, 1.4, 1)])
def test_dualpipe_beyond_its_table(f, b, w):
    """With other passes the order that DeepSeek published has the bubble max(h F, h B - F) + h (F + max(0, B - W)).

    h = p/2 - 1 and B the input gradient. The table's formula is h (F + 2 B - W) in these letters: the same for F = B,
    at most F longer for B > F, and shorter for B < F.
    """
    p, m = 8, 24
    h = p // 2 - 1
    step = simulate("dualpipe", ((ChunkCost(f, b, w),) * 2,) * p, m)
    expected = max(h * f, h * b - f) + h * (f + max(0, b - w))
    assert step.total_s - max(step.busy_s) == pytest.approx(expected)


def test_1f1b_keeps_at_most_p_micro_batches():
    """At most p micro-batches are in flight, and all m with GPipe (arXiv:2104.04473, section 2.2.1)."""
    for m in (4, 8, 64):
        assert max(in_flight("1f1b", 4, 1, m)) == (4,)
        assert in_flight("gpipe", 4, 1, m) == ((m,),) * 4


def test_interleaved_keeps_more():
    """The first stage keeps 1 + (p - 1) / (p v) times what 1F1B keeps (arXiv:2205.05198, section 4.2.3)."""
    p, v, m = 8, 4, 64
    chunks = sum(in_flight("interleaved", p, v, m)[0])
    assert chunks == 2 * (p - 1) + (v - 1) * p + 1
    assert chunks / v == p * (1 + (p - 1) / (p * v))
