"""Products in FP8: what is rounded and how, what is kept, and what goes through untouched."""

import math
from dataclasses import replace

import pytest
import torch

from torchledger import formats
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, OptimizerSpec, Recipe
from torchledger.trainer.fp8 import GRADIENT, VALUE, fp8_linear, fp8_product, padded, quantize, tensor_scale
from torchledger.trainer.linear import Linear
from torchledger.trainer.step import build_model, build_step

TOKENS, IN, OUT = 48, 32, 64
SPEC = ModelSpec("tiny", 50, 32, 2, 32, AttentionSpec(4), MlpSpec(48))


def _drawn(*shape, seed=0, **options):
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return drawn.bfloat16().requires_grad_(options.get("requires_grad", True))


def _by_hand(x):
    """The scale and every value times it, rounded by the exact arithmetic of the number formats, as Python numbers."""
    largest = max(abs(value) for value in x.flatten().tolist())
    scale = torch.tensor(448 / largest).item()  # to FP32
    rounded = []
    for value in x.flatten().tolist():
        product = torch.tensor(value * scale).item()  # to FP32
        rounded.append(formats.encode(product, "fp8_e4m3").value)
    return scale, torch.tensor(rounded, dtype=torch.float64).reshape(x.shape)


def test_the_forward_product_by_hand():
    """Every y is Σ q(x)·q(w) over both scales, each value rounded once to E4M3, the sum once to BF16."""
    x, weight = _drawn(4, 16, requires_grad=False), _drawn(16, 16, seed=1, requires_grad=False)
    (x_scale, small_x), (weight_scale, small_weight) = _by_hand(x), _by_hand(weight)
    expected = (small_x @ small_weight.T / (x_scale * weight_scale)).bfloat16()
    assert torch.equal(fp8_linear(x, weight, None), expected)


def test_results_are_within_the_rounding_of_their_operands():
    """A value errs by 2^-4 of itself in E4M3, 2^-3 in E5M2, or half the smallest subnormal; the result by 2^-8."""
    x, weight, bias = _drawn(TOKENS, IN), _drawn(OUT, IN, seed=1), _drawn(OUT, seed=2)
    dy = _drawn(TOKENS, OUT, seed=3, requires_grad=False)
    y = fp8_linear(x, weight, bias)
    y.backward(dy)
    with torch.no_grad():
        off = {}
        for name, each, relative, smallest, largest in (
            ("x", x, 2**-4, 2**-9, 448),
            ("w", weight, 2**-4, 2**-9, 448),
            ("dy", dy, 2**-3, 2**-16, 57344),
        ):
            wide = each.double()
            off[name] = (wide, relative * wide.abs() + smallest / 2 * wide.abs().max() / largest)

        def assert_near(result, left, right, add=0.0):
            (a, a_off), (b, b_off) = left, right
            exact = a @ b + add
            bound = (a.abs() + a_off) @ (b.abs() + b_off) - a.abs() @ b.abs()
            assert bool(((result.double() - exact).abs() <= bound + 2**-8 * exact.abs() + 2**-8 * bound).all())
            assert not torch.equal(result.double(), exact.bfloat16().double())  # and it was rounded

        def turned(pair):
            return pair[0].T, pair[1].T

        assert_near(y, off["x"], turned(off["w"]), bias.double())
        assert_near(x.grad, off["dy"], off["w"])
        assert_near(weight.grad, turned(off["dy"]), off["x"])
        assert torch.equal(bias.grad, dy.sum(dim=0))


def test_the_largest_magnitude_fills_the_format():
    """Whatever the size of the values, the largest becomes 448 in E4M3 and 57,344 in E5M2, with its sign."""
    for size in (1e-30, 3e-5, 1.0, 77.0, 3e30):
        x = torch.tensor([[-size, size / 3, 0.0]]).bfloat16()
        if size > 1e-12:
            assert quantize(x, tensor_scale(x, VALUE), VALUE)[0, 0].item() == -448
            assert quantize(x, tensor_scale(x, GRADIENT), GRADIENT)[0, 0].item() == -57344
        else:  # smaller than what a scale is made for: it is 0
            assert quantize(x, tensor_scale(x, VALUE), VALUE)[0, 0].item() == 0


def test_zeros_stay_zeros_and_what_is_no_number_goes_through():
    """A loss that is no number has to be seen: NaN or an infinity in a tensor is NaN in all that is made of it."""
    x, weight = torch.zeros(16, IN).bfloat16(), _drawn(OUT, IN)
    assert not fp8_linear(x, weight, None).any()
    for value in (math.nan, math.inf, -math.inf):
        x[3, 4] = value
        assert fp8_linear(x, weight, None)[3].isnan().all()


def test_an_expert_that_nobody_chose():
    """No rows give no rows, and a gradient of zeros."""
    x, weight = torch.zeros(0, IN).bfloat16().requires_grad_(), _drawn(OUT, IN)
    y = fp8_linear(x, weight, None)
    assert y.shape == (0, OUT)
    y.sum().backward()
    assert x.grad.shape == (0, IN)
    assert not weight.grad.any()


@pytest.mark.parametrize(("wants_x", "wants_weight"), [(True, False), (False, True)])
def test_only_what_is_asked_for_is_kept_and_computed(wants_x, wants_weight):
    """A frozen weight needs no x, an input without gradient no weight."""
    kept = []
    x, weight = _drawn(TOKENS, IN, requires_grad=wants_x), _drawn(OUT, IN, seed=1, requires_grad=wants_weight)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        y = fp8_linear(x, weight, None)
    assert kept == [x.shape if wants_weight else weight.shape, torch.Size([])]  # and its scale
    y.sum().backward()
    assert ((x.grad is not None), (weight.grad is not None)) == (wants_x, wants_weight)


def test_columns_of_zeros_change_no_product():
    """CUDA contracts over multiples of 16 tokens; 5 tokens and 11 zeros are the 5."""
    x, dy = _drawn(5, IN, requires_grad=False), _drawn(5, OUT, seed=1, requires_grad=False)
    scales = (tensor_scale(dy, GRADIENT), tensor_scale(x, VALUE))
    left, right = quantize(dy.t(), scales[0], GRADIENT), quantize(x.t(), scales[1], VALUE)
    assert padded(left).shape == (OUT, 16)
    plain = fp8_product(left, right.t(), scales, torch.bfloat16)
    assert torch.equal(fp8_product(padded(left), padded(right).t(), scales, torch.bfloat16), plain)


def test_which_maps_compute_in_fp8():
    """Those of attention and MLP whose sizes are multiples of 16; not the head, an adapter, or a width of 24."""

    def narrow(spec, **recipe):
        model = build_model(spec, Recipe(precision="fp8", sequence_length=16, **recipe))
        return {name for name, each in model.named_modules() if isinstance(each, Linear) and each.is_narrow}

    attention = {f"layers.{i}.attention.{name}" for i in (0, 1) for name in ("query", "key", "value", "output")}
    mlp = {f"layers.{i}.mlp.{name}" for i in (0, 1) for name in ("gate", "up", "down")}
    assert narrow(SPEC) == attention | mlp
    assert narrow(replace(SPEC, mlp=MlpSpec(24))) == attention
    assert narrow(SPEC, lora_rank=16) == attention | mlp


def test_a_model_learns_as_in_bf16():
    """Thirty steps on one batch of drawn tokens: both fall below half of the first loss, and end within a tenth."""
    ids = torch.randint(0, 50, (4, 17), generator=torch.Generator().manual_seed(0))
    losses = {}
    for precision in ("bf16-master", "fp8"):
        recipe = Recipe(
            4, 16, precision, OptimizerSpec(learning_rate=1e-2, schedule="constant"), num_tokens=30 * 64, seed=3
        )
        step = build_step(SPEC, recipe)
        losses[precision] = [step([(ids[:, :-1], ids[:, 1:])], number).loss.item() for number in range(30)]
    wide, narrow = losses["bf16-master"], losses["fp8"]
    assert wide != narrow
    assert max(wide[-1], narrow[-1]) < wide[0] / 2
    assert narrow[-1] == pytest.approx(wide[-1], abs=0.1 * wide[0])
