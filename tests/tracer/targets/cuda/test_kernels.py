import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.tracer import Recorder, trace_step
from torchledger.tracer.targets import target

ROWS, WIDTH = 4, 64
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def _traced(function, dtype=BF16, name="cuda"):
    def build():
        x = torch.randn(ROWS, WIDTH, dtype=dtype, requires_grad=True)
        weight = torch.ones(WIDTH, dtype=dtype, requires_grad=True)
        return lambda: function(x, weight).sum().backward()

    return trace_step(build, steps=1, target=name, **({"chip": "A100 SXM 80GB"} if name == "cuda" else {}))


def _made_by(trace, op):
    return [(block.shape, block.number_format) for block in trace.timeline.blocks if block.op == f"aten.{op}.default"]


def _ops(trace):
    return [call.signature.op.split(".")[1] for call in trace.calls]


def test_dropout_is_one_kernel_that_keeps_a_boolean_mask():
    """On CUDA the mask has one byte an element; the CPU keeps the noise in the input's format."""
    trace = _traced(lambda x, _: functional.dropout(x, 0.1))
    assert _made_by(trace, "native_dropout") == [((ROWS, WIDTH), "bf16"), ((ROWS, WIDTH), "bool")]
    assert "native_dropout" not in _ops(_traced(lambda x, _: functional.dropout(x, 0.1), name="cpu"))


@pytest.mark.parametrize(("probability", "training"), [(0.0, True), (0.5, False)])
def test_dropout_of_nothing_is_nothing(probability, training):
    """Without training, or with probability 0, the input itself comes back."""
    seen = _ops(_traced(lambda x, w: functional.dropout(x * w, probability, training)))
    assert not any("dropout" in op for op in seen)
    assert seen.count("mul") == 3  # x·w and its two gradients


def test_dropout_of_everything():
    """With probability 1 it is a product with zero, as in Dropout.cpp."""
    assert "zeros" in _ops(_traced(lambda x, _: functional.dropout(x, 1.0)))


@pytest.mark.parametrize("softmax", [functional.softmax, functional.log_softmax])
def test_softmax_of_fp16_to_fp32_makes_no_copy(softmax):
    """From FP16 the kernel itself widens; from BF16 a cast comes first."""
    assert "_to_copy" not in _ops(_traced(lambda x, _: softmax(x, -1, dtype=FP32), FP16))
    assert "_to_copy" in _ops(_traced(lambda x, _: softmax(x, -1, dtype=FP32), BF16))


def test_rms_norm_is_one_kernel():
    """It keeps 1/RMS of every row in FP32, and its backward is one kernel too."""
    trace = _traced(lambda x, w: functional.rms_norm(x, (WIDTH,), w))
    assert _made_by(trace, "_fused_rms_norm") == [((ROWS, WIDTH), "bf16"), ((ROWS, 1), "fp32")]
    assert "_fused_rms_norm_backward" in _ops(trace)
    assert "rsqrt" in _ops(_traced(lambda x, w: functional.rms_norm(x, (WIDTH,), w), name="cpu"))


@pytest.mark.parametrize(("dtype", "kept"), [(BF16, "fp32"), (FP16, "fp32"), (FP32, "fp32"), (torch.float64, "fp64")])
def test_layer_norm_keeps_its_statistics_in_the_format_of_its_sums(dtype, kept):
    """Mean and 1/σ are FP32 for halves, which the CPU's are not."""
    made = _made_by(_traced(lambda x, w: functional.layer_norm(x, (WIDTH,), w), dtype), "native_layer_norm")
    assert made[1:] == [((ROWS, 1), kept)] * 2


def test_inside_inference_mode():
    """Below autograd CUDA's kernels run as well."""

    def build():
        attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True, dtype=BF16).train()
        x = torch.ones(2, ROWS, WIDTH, dtype=BF16)

        def step():
            with torch.inference_mode():
                return functional.rms_norm(functional.scaled_dot_product_attention(x, x, x), (WIDTH,)), attention

        return step

    assert "_fused_rms_norm" in _ops(trace_step(build, steps=1, target="cuda", chip="A100 SXM 80GB"))


def test_the_cpu_is_as_before():
    """Afterwards a CPU trace saves what the CPU saves, though shapes were looked up before."""
    before = _made_by(_traced(lambda x, w: functional.layer_norm(x, (WIDTH,), w), name="cpu"), "native_layer_norm")
    _traced(lambda x, w: functional.layer_norm(x, (WIDTH,), w))
    after = _made_by(_traced(lambda x, w: functional.layer_norm(x, (WIDTH,), w), name="cpu"), "native_layer_norm")
    assert before == after
    assert before[1] == ((ROWS, 1), "bf16")


def test_real_tensors_run_the_cpus_kernels():
    """A recording of real tensors for CUDA still computes."""
    x = torch.ones(ROWS, WIDTH)
    with Recorder(target=target("cpu")):
        assert functional.softmax(x, -1).sum().item() == pytest.approx(ROWS)


def test_whole_numbers_are_counted_in_their_own_format():
    """CUDA's `histc` takes int32, which the CPU's does not: 4 bins of 4 bytes."""

    def step():
        counts = torch.histc(torch.zeros(8, dtype=torch.int32), bins=4, min=0, max=3)
        assert (counts.shape, counts.dtype) == ((4,), torch.int32)

    trace_step(lambda: step, steps=1, target="cuda")
    with pytest.raises(RuntimeError, match="not implemented for"):
        trace_step(lambda: step, steps=1, target="cpu")
