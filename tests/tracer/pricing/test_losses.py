import pytest
import torch
from torch.nn import functional

X, T = torch.zeros(4, 5), torch.zeros(4, 5)


@pytest.mark.parametrize(
    ("loss", "flops", "backward_flops"),
    [
        (functional.mse_loss, 2, 3),
        (functional.smooth_l1_loss, 5, 5),
        (functional.huber_loss, 5, 5),
        (functional.binary_cross_entropy, 6, 5),
        (functional.soft_margin_loss, 2, 5),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_loss_of_elements_and_its_gradient(lines, loss, flops, backward_flops):
    """Each of n elements, and n - 1 adds of the mean; backward n elements."""
    x = X.clone().requires_grad_()
    forward, gradient = [line for line in lines(lambda: loss(x, T).backward()) if line.kind == "loss"]
    assert forward.work.flops_full == flops * 20 + 19
    assert (gradient.work.flops_full, gradient.phase) == (backward_flops * 20, "backward")


def test_logits_with_a_weight_of_positives(lines):
    """Four more an element."""
    run = functional.binary_cross_entropy_with_logits
    plain = sum(line.work.flops_full for line in lines(lambda: run(X, T)) if line.kind == "loss")
    weighted = sum(
        line.work.flops_full for line in lines(lambda: run(X, T, pos_weight=torch.ones(5))) if line.kind == "loss"
    )
    assert (plain, weighted - plain) == (6 * 20 + 19, 4 * 20)


def test_hinges_and_alignments(lines):
    """C - 1 hinges a row; frames times states."""
    target = torch.zeros(4, dtype=torch.int64)
    (hinges,) = [line for line in lines(lambda: functional.multi_margin_loss(X, target)) if line.kind == "loss"]
    assert hinges.work.flops_full == 4 * (4 * 3 + 3) + 3
    scores = torch.zeros(10, 2, 6)
    labels = torch.ones(2, 3, dtype=torch.int64)
    run = lambda: functional.ctc_loss(scores, labels, (10, 8), (3, 2))  # noqa: E731
    aligned = next(line for line in lines(run) if line.op == "ctc")
    assert aligned.work.flops_full == 9 * (10 * 7 + 8 * 5)
