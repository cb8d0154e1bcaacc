import torch


def test_a_fake_grid_rounds_back_and_forth(lines):
    """Nine an element, and the mask of what was inside."""
    x = torch.zeros(10)
    found = lines(lambda: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127))
    assert sum(line.total.flops_full for line in found) == 9 * 10
    assert found[0].work.bytes_written == 10 * (4 + 1)


def test_learned_grids_have_gradients_of_their_own(lines):
    """Twelve an element, and two sums of n - 1."""
    x = torch.zeros(10, requires_grad=True)
    scale, zero = torch.ones(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    run = lambda: torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero, -128, 127)  # noqa: E731
    found = lines(lambda: run().sum().backward())
    backward = [line for line in found if line.phase == "backward" and line.op.startswith("fake_quantize")]
    assert backward[0].work.flops_full == 12 * 10
