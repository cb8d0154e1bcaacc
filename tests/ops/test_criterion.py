import pytest

from torchledger import ops


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("mse", lambda a, t: _square(a - t)),
        ("huber", lambda a, t: (_abs(a - t) < 1.0, 0.5 * _square(a))),
        ("smooth_l1", lambda a, t: (_abs(a - t) < 1.0, 0.5 * _square(a) / 1.0)),
        ("soft_margin", lambda a, t: (-t * a).exp().log1p() + 0.0),
    ],
)
def test_a_loss_counts_what_its_formula_does(counted, name, formula):
    """One element, not reduced."""
    formula(counted.number(0.4), counted.number(0.9))
    work = ops.criterion(name, 1, reduced=False)[0].work
    assert (work.flops_full, work.transcendentals) == counted.taken()


def test_a_mean_adds_and_divides_once():
    """N - 1 adds, one division."""
    whole, each = (ops.criterion("mse", 9, reduced=which)[0].work for which in (True, False))
    assert whole.flops_full - each.flops_full == 8
    assert whole.transcendentals - each.transcendentals == 1
    assert ops.criterion("mse", 9, mean=False)[0].work.transcendentals == 0


def test_hinges_of_all_wrong_classes(counted):
    """Sum over wrong classes of max(0, m - x_y + x_i), over the number of classes, brute force."""
    classes = 5
    for _row in range(3):
        scores = counted.numbers(classes)
        hinges = []
        for wrong in range(classes - 1):
            z = 1.0 - scores[-1] + scores[wrong]
            _ = z > 0.0
            hinges.append(z)
        _ = counted.sum(hinges) / classes
    work = ops.multi_margin(3, classes, reduced=False)[0].work
    assert (work.flops_full, work.transcendentals) == counted.taken()


def test_squares_and_weights_cost_one_more_each():
    plain = ops.multi_margin(3, 5)[0].work.flops_full
    assert ops.multi_margin(3, 5, power=2, weighted=True)[0].work.flops_full - plain == 2 * 3 * 4
    assert ops.multi_margin_backward(3, 5)[0].work.flops_full == 3 * (4 * 4 + 5)


def test_alignments_take_nine_a_frame_and_state(counted):
    """α of one state from the three before it, in logarithms, brute force."""
    before = counted.numbers(3)
    largest = max(before)
    total = counted.sum([(value - largest).exp() for value in before])
    _ = total.log1p() + largest + counted.number(0.2)
    work = ops.ctc(1, 1)[0].work
    assert (work.flops_full, work.transcendentals) == counted.taken()


def test_backward_of_alignments_visits_states_and_scores():
    work = ops.ctc_backward(10, 5, 60)[0].work
    assert (work.flops_full, work.transcendentals) == (14 * 50 + 4 * 60, 7 * 50 + 2 * 60)


def _square(a):
    return a * a


def _abs(a):
    _ = a > 0.0
    return a
