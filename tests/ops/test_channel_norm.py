import pytest

from torchledger import ops


def _counts(pieces):
    return sum(p.work.flops_full for p in pieces), sum(p.work.transcendentals for p in pieces)


def _statistics(x, counted):
    mean = counted.sum(x) * (1 / len(x))
    centred = [a - mean for a in x]
    return mean, centred, counted.sum([c * c for c in centred]) * (1 / len(x))


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_counts_what_its_formula_does(counted, training):
    """One channel of 6 elements, in training with its running statistics."""
    x, one = counted.numbers(6), counted.number
    mean, variance = one(0.3), one(2.0)
    if training:
        mean, _, variance = _statistics(x, counted)
        for running, new in ((one(), mean), (one(), variance * (6 / 5))):
            _ = running + (new - running) * 0.1
    scale = (variance + 1e-5).rsqrt() * one(3.0)
    shift = one(1.0) - mean * scale
    _ = [a * scale + shift for a in x]
    assert _counts(ops.batch_norm(1, 6, training=training)) == counted.taken()


@pytest.mark.parametrize(("affine", "bias"), [(False, False), (True, False)])
def test_a_missing_weight_or_bias_is_work_saved(affine, bias):
    """One product a channel without w, one add without b."""
    whole = ops.batch_norm(5, 7)[0].work.flops_full
    less = ops.batch_norm(5, 7, affine=affine, bias=bias)[0].work.flops_full
    assert whole - less == 5 * (1 + (0 if affine else 1))


def test_batch_norm_backward_counts_what_its_formula_does(counted):
    """The gradient dx = (dy - mean(dy) - (x - μ)·k)·r·w, and dw of the sum that is there."""
    x, dy, one = counted.numbers(6), counted.numbers(6), counted.number
    mean, r, w = one(0.2), one(1.5), one(3.0)
    sum_dy = counted.sum(dy)
    dot = counted.sum([(a - mean) * g for a, g in zip(x, dy, strict=True)])
    mean_dy, k = sum_dy * (1 / 6), dot * (1 / 6) * r * r
    scale = r * w
    _ = [(g - mean_dy - (a - mean) * k) * scale for a, g in zip(x, dy, strict=True)]
    of_input, of_weight = ops.batch_norm_backward(1, 6)
    assert of_input.work.flops_full == counted.taken()[0]
    _ = dot * r
    assert of_weight.work.flops_full == counted.taken()[0]


def test_evaluation_differentiates_a_scale():
    """+ ε, r·w, a product an element; x - μ, ·dy and sums for the weights."""
    of_input, of_weight = ops.batch_norm_backward(1, 6, training=False)
    assert of_input.work.flops_full == 1 + 1 + 6
    assert of_weight.work.flops_full == 6 + 6 + 5 + 1 + 5


def test_group_norm_counts_what_its_formula_does(counted):
    """Two samples, four channels of 3 in two groups."""
    one = counted.number
    for _sample in range(2):
        for _group in range(2):
            x = counted.numbers(2 * 3)
            mean, _, variance = _statistics(x, counted)
            r = (variance + 1e-5).rsqrt()
            for channel in range(2):
                scale = r * one(2.0)
                shift = one() - mean * scale
                _ = [a * scale + shift for a in x[3 * channel : 3 * channel + 3]]
    assert _counts(ops.group_norm(2, 4, 3, 2)) == counted.taken()


def test_group_norm_backward_counts_what_its_formula_does(counted):
    """Sums a channel, combined a group, 4 an element; the weights' gradients of those sums."""
    one = counted.number
    for _sample in range(2):
        for _group in range(2):
            products, plain = [], []
            for _channel in range(2):
                x, dy = counted.numbers(3), counted.numbers(3)
                products.append(counted.sum([a * g for a, g in zip(x, dy, strict=True)]))
                plain.append(counted.sum(dy))
            a = counted.sum([p * one(2.0) for p in products])
            b = counted.sum([p * one(2.0) for p in plain])
            mean, r = one(0.3), one(1.2)
            c2 = (b * mean - a) * r * r * r * (1 / 6)
            c3 = -(c2 * mean) - b * r * (1 / 6)
            for _channel in range(2):
                c1 = r * one(2.0)
                _ = [c1 * g + c2 * v + c3 for v, g in zip(x, dy, strict=True)]
    of_input, of_weight = ops.group_norm_backward(2, 4, 3, 2)
    assert of_input.work.flops_full == counted.taken()[0]
    for _channel in range(4):
        per_sample = [((one() - one() * one()) * one(), one()) for _ in range(2)]
        _ = counted.sum([w for w, _ in per_sample]), counted.sum([b for _, b in per_sample])
    assert of_weight.work.flops_full == counted.taken()[0]


def test_weight_norm_counts_what_its_formula_does(counted):
    v, g = counted.numbers(6), counted.number(2.0)
    norm = counted.sum([a * a for a in v]).sqrt()
    ratio = g / norm
    _ = [a * ratio for a in v]
    assert _counts(ops.weight_norm(1, 6)) == counted.taken()
    dw = counted.numbers(6)
    dot = counted.sum([a * b for a, b in zip(v, dw, strict=True)])
    _ = dot / norm
    ratio, shrink = g / norm, dot / (norm * norm)
    _ = [(b - a * shrink) * ratio for a, b in zip(v, dw, strict=True)]
    assert _counts(ops.weight_norm_backward(1, 6)) == counted.taken()


def test_renorm_multiplies_every_row(counted):
    row = counted.numbers(6)
    norm = counted.sum([a * a for a in row]).sqrt()
    _ = norm > 1.0
    factor = counted.number() / (norm + 1e-7)
    _ = [a * factor for a in row]
    assert _counts(ops.renorm(1, 6)) == counted.taken()
