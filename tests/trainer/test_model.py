from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchledger.formula.parameters import parameters
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, NormSpec, PositionSpec, SpecError
from torchledger.trainer.init import initialize
from torchledger.trainer.model import build


def initialized(spec, **options):
    model = build(spec, **options)
    initialize(model, "fan_in", seed=3)
    return model


def loss_and_gradients(model, batch):
    loss = model(*batch)
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


def test_every_field_trains(any_spec, batch):
    """Every model computes a finite loss, and a finite gradient reaches every one of its parameters."""
    loss, gradients = loss_and_gradients(initialized(any_spec, attention="math"), batch)
    assert loss == pytest.approx(5.55, abs=0.3)  # ln 257
    assert all(gradient is not None and torch.isfinite(gradient).all() for gradient in gradients.values())


def test_math_and_fused_attention_are_the_same_function(any_spec, batch):
    """The two kernels give the same loss and gradients up to rounding."""
    models = [initialized(any_spec, attention=kernel).eval() for kernel in ("math", "fused")]
    (a, gradients_a), (b, gradients_b) = (loss_and_gradients(model, batch) for model in models)
    assert a == pytest.approx(b, rel=1e-5)
    for name, gradient in gradients_a.items():
        torch.testing.assert_close(gradient, gradients_b[name], rtol=1e-3, atol=1e-5)


def test_recomputing_changes_nothing(any_spec, batch):
    """With recompute every loss and gradient has the same bits."""
    results = []
    for recompute in ("none", "full"):
        model = initialized(any_spec, attention="math", recompute=recompute)
        torch.manual_seed(0)  # dropout
        results.append(loss_and_gradients(model, batch))
    (a, gradients_a), (b, gradients_b) = results
    assert a == b
    assert all(torch.equal(gradient, gradients_b[name]) for name, gradient in gradients_a.items())


def test_parameters_are_those_of_the_formula(any_spec):
    """Names and shapes are what `formula.parameters` lists, one by one."""
    with torch.device("meta"):
        built = {name: tuple(p.shape) for name, p in build(any_spec, attention="math").named_parameters()}
    listed = {p.name: p.shape for p in parameters(any_spec, expand=True) if p.trainable and p.tied_to is None}
    assert built == listed


@pytest.mark.parametrize(("mode", "kernel"), [("meta", "math"), ("meta", "fused"), ("fake", "fused")])
def test_it_runs_on_meta_and_fake_tensors(any_spec, mode, kernel):
    """Forward and backward run without values, with the shapes of the real run."""
    with torch.device("meta") if mode == "meta" else FakeTensorMode():
        model = build(any_spec, attention=kernel)
        tokens = torch.zeros(2, 16, dtype=torch.int64)
        assert model(tokens).shape == (2, 16, any_spec.vocab_size)
        model(tokens, tokens).backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())


def test_no_token_sees_a_later_one(any_spec, batch):
    """Changing a token leaves the logits of all earlier ones as they were."""
    tokens = batch[0][:1]
    changed = tokens.clone()
    changed[0, 10] = (changed[0, 10] + 1) % any_spec.vocab_size
    for kernel in ("math", "fused"):
        model = initialized(any_spec, attention=kernel).eval()
        with torch.no_grad():
            before, after = model(tokens), model(changed)
        torch.testing.assert_close(before[:, :10], after[:, :10], rtol=1e-4, atol=1e-5)
        assert not torch.allclose(before[:, 10:], after[:, 10:])


def test_a_window_ends_what_a_token_sees(tiny):
    """In one layer with window 4, token 10 is seen by tokens 10 to 13 and no further."""
    spec = replace(tiny, num_layers=1, attention=replace(tiny.attention, window_pattern=(4,)))
    model = initialized(spec, attention="math").eval()
    tokens = torch.arange(16).unsqueeze(0)
    changed = tokens.clone()
    changed[0, 10] = 99
    with torch.no_grad():
        differs = ~torch.isclose(model(tokens), model(changed), rtol=1e-4, atol=1e-6).all(-1)[0]
    assert differs.nonzero().flatten().tolist() == [10, 11, 12, 13]


def test_llama_405b_is_built_and_run_without_memory():
    """The largest preset's parameters are counted to the last one, and a step of it runs on meta."""
    scaling = {"kind": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192.0}
    spec = ModelSpec(
        "405b",
        128256,
        131072,
        126,
        16384,
        AttentionSpec(128, 8),
        MlpSpec(53248),
        position=PositionSpec(scaling=scaling),
    )
    with torch.device("meta"):
        model = build(spec, attention="fused")
        tokens = torch.zeros(1, 128, dtype=torch.int64)
        model(tokens, tokens).backward()
    assert sum(p.numel() for p in model.parameters()) == 405_853_388_800


def test_a_tied_head_is_the_embedding(tiny):
    """A tied head is the embedding's own tensor and is listed once."""
    model = build(replace(tiny, tied_embeddings=True), attention="math")
    assert model.head.weight is model.embedding.weight
    assert "head.weight" not in dict(model.named_parameters())


def test_logits_without_targets_and_ignored_targets(tiny, batch):
    """The loss is the cross-entropy of the logits; a target of -100 does not count."""
    model = initialized(tiny, attention="math")
    tokens, targets = batch
    targets = targets.clone()
    targets[:, 8:] = -100
    logits = model(tokens)[:, :8]
    expected = -logits.log_softmax(-1).gather(-1, targets[:, :8].unsqueeze(-1)).mean()
    torch.testing.assert_close(model(tokens, targets), expected)


@pytest.mark.parametrize("kind", ["rotary", "learned"])
def test_too_long_a_sequence_is_told(tiny, kind):
    """A sequence beyond the position tables is refused with both numbers."""
    model = build(replace(tiny, position=PositionSpec(kind)), attention="math")
    with pytest.raises(ValueError, match="tiny has 32 positions, too few for 33 tokens"):
        model(torch.zeros(1, 33, dtype=torch.int64))


def test_rotary_tables_are_as_long_as_asked(tiny):
    """Tables are made for the sequence at hand, shorter or longer than the model's own maximum."""
    for length in (8, 64):
        model = initialized(tiny, attention="math", sequence_length=length)
        assert model(torch.zeros(1, length, dtype=torch.int64)).shape == (1, length, 257)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"norm": NormSpec(shared=True)}, r"norm\.shared"),
        ({"parallel": True, "norm": NormSpec(placement="post")}, r"norm\.placement"),
        ({"hidden_size": 33}, "hidden_size"),
        ({"position": PositionSpec(rotary_fraction=0.4)}, r"position\.rotary_fraction"),
        ({"position": PositionSpec(scaling={"kind": "longrope"})}, r"position\.scaling.*longrope"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(tiny, fields, message):
    """A combination that no module implements is a SpecError that names the field."""
    with pytest.raises(SpecError, match=message):
        build(replace(tiny, **fields), attention="math")


def test_bf16_keeps_the_residual_stream_in_fp32(tiny, batch):
    """Under autocast matmuls run in bfloat16, while the stream between layers and the loss stay float32."""
    model = initialized(tiny, attention="math")
    seen = []
    model.layers[0].register_forward_hook(lambda _m, _i, out: seen.append(out.dtype))
    model.layers[0].mlp.up.register_forward_hook(lambda _m, _i, out: seen.append(out.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(*batch)
    assert seen == [torch.bfloat16, torch.float32]
    assert loss.dtype == torch.float32


@pytest.mark.parametrize("kernel", ["math", "fused"])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"position": PositionSpec("alibi")},
        {"attention": AttentionSpec(4, 2, window_pattern=(3, 0))},
        {"attention": AttentionSpec(4, 2, logit_soft_cap=20.0)},
    ],
    ids=["rotary", "alibi", "window", "soft-cap"],
)
def test_documents_kept_apart_are_as_if_each_stood_alone(kernel, change):
    """Rotary positions and ALiBi see differences only, so a document's logits are those of it in a row of its own."""
    spec = replace(ModelSpec("tiny", 50, 16, 2, 16, AttentionSpec(4, 2), MlpSpec(24)), **change)
    model = build(spec, attention=kernel)
    initialize(model, "fan_in", 0)
    tokens = torch.randint(0, 50, (2, 12), generator=torch.Generator().manual_seed(0))
    documents = torch.tensor([[0] * 5 + [1] * 7, [3] * 12])
    with torch.no_grad():
        logits = model(tokens, None, documents)
        for row, begin, end in ((0, 0, 5), (0, 5, 12), (1, 0, 12)):
            alone = model(tokens[row : row + 1, begin:end])
            torch.testing.assert_close(logits[row : row + 1, begin:end], alone, atol=1e-5, rtol=1e-5)
