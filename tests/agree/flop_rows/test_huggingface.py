"""Models of transformers, built on no memory: forward FLOPs by the sizes in their configurations."""

import pytest
import torch

transformers = pytest.importorskip("transformers")

B, S, d, H, KV, h, L, V = 2, 32, 64, 4, 2, 16, 2, 256
T = B * S
ATTENTION = 2 * 2 * B * H * S * S * h
SMALL = {
    "hidden_size": d, "num_hidden_layers": L, "num_attention_heads": H, "num_key_value_heads": KV, "vocab_size": V,
    "intermediate_size": 128,
}  # fmt: skip


def _forward(look, cls, config, *, attention="sdpa", experts=None, train=False, **inputs):
    """Ledger of a forward pass."""
    config._attn_implementation = attention
    if experts is not None:
        config._experts_implementation = experts
    made = {}

    def run():
        model = made["model"] = cls(config).train(train)
        with torch.set_grad_enabled(train):
            model(**{name: make() for name, make in inputs.items()})

    ledger = look(run).ledger.where(lambda line: line.kind not in {"random", "copy"})
    assert ledger.is_complete
    return ledger


def _ids(batch=B, length=S):
    return lambda: torch.zeros(batch, length, dtype=torch.int64)


def _projections(width, heads, key_value_heads, head_size):
    return 2 * width * head_size * (2 * heads + 2 * key_value_heads)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_llama(attention, look):
    """Projections, a gated layer of three products and a head."""
    cls = transformers.LlamaForCausalLM
    ledger = _forward(look, cls, transformers.LlamaConfig(**SMALL), attention=attention, input_ids=_ids())
    layer = T * (_projections(d, H, KV, h) + 2 * 3 * d * 128) + ATTENTION
    assert ledger.flops == L * layer + 2 * T * d * V == 12_582_912


@pytest.mark.filterwarnings("ignore")
def test_gpt2(look):
    """Its Conv1D is a product: q, k, v and output, two of four times the width, and the tied head."""
    config = transformers.GPT2Config(n_embd=d, n_layer=L, n_head=H, vocab_size=V, bos_token_id=0, eos_token_id=0)
    ledger = _forward(look, transformers.GPT2LMHeadModel, config, input_ids=_ids())
    layer = 2 * T * d * d * (4 + 8) + ATTENTION
    assert ledger.flops == L * layer + 2 * T * d * V == 15_728_640


@pytest.mark.parametrize("experts", ["grouped_mm", "batched_mm", "eager"])
def test_qwen2_moe(experts, look):
    """Each token meets 2 of 4 experts of width 32, a shared one of 64 behind a gate of one, and the router."""
    config = transformers.Qwen2MoeConfig(
        **SMALL, moe_intermediate_size=32, shared_expert_intermediate_size=64, num_experts=4, num_experts_per_tok=2
    )
    ledger = _forward(look, transformers.Qwen2MoeForCausalLM, config, experts=experts, input_ids=_ids())
    mixture = 2 * 3 * d * 32 * 2 + 2 * 3 * d * 64 + 2 * d * 1 + 2 * d * 4
    layer = T * (_projections(d, H, KV, h) + mixture) + ATTENTION
    assert ledger.flops == L * layer + 2 * T * d * V == 12_664_832
    if experts == "eager":
        assert any("experts" in assumption for assumption in ledger.assumptions)


def test_vit_b_16(look):
    """A patch of 16 x 16 x 3 becomes a token; 196 of them and the class token; a head of 1,000 classes."""
    config = transformers.ViTConfig(num_labels=1000)
    inputs = {"pixel_values": lambda: torch.zeros(1, 3, 224, 224)}
    ledger = _forward(look, transformers.ViTForImageClassification, config, **inputs)
    tokens, width = 197, 768
    layer = 2 * tokens * width * width * (4 + 8) + 2 * 2 * tokens * tokens * width
    patches = 2 * 196 * (16 * 16 * 3) * width
    assert ledger.flops == patches + 12 * layer + 2 * width * 1000 == 35_127_656_448


def test_resnet_50(look):
    """Bottlenecks 1 x 1, 3 x 3, 1 x 1 of 3, 4, 6 and 3 blocks; the 3 x 3 has the stride."""
    config = transformers.ResNetConfig(num_labels=1000)
    inputs = {"pixel_values": lambda: torch.zeros(1, 3, 224, 224)}
    ledger = _forward(look, transformers.ResNetForImageClassification, config, attention="eager", **inputs)
    flops, inside, side = 2 * 112 * 112 * 49 * 3 * 64, 64, 56
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            outside, before = 4 * width, side
            side = side // 2 if block == 0 and width > 64 else side
            flops += 2 * (before**2 * inside * width + side**2 * width * (9 * width + outside))
            flops += 2 * side**2 * inside * outside if block == 0 else 0  # the shortcut
            inside = outside
    assert ledger.flops == flops + 2 * 2048 * 1000 == 8_178_368_512


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("train", [True, False])
def test_gpt2_of_124_million(train, look):
    """In training its dropout runs attention as products, in evaluation one kernel does: the same FLOPs."""
    ledger = _forward(
        look, transformers.GPT2LMHeadModel, transformers.GPT2Config(), train=train, input_ids=_ids(1, 1024)
    )
    layer = 2 * 1024 * 768 * 768 * (4 + 8) + 2 * 2 * 1024 * 1024 * 768
    assert ledger.flops == 12 * layer + 2 * 1024 * 768 * 50_257 == 291_648_307_200


def test_llama_3_8b(look):
    """32 layers of width 4,096 on 4,096 tokens: 7.027e13, of which attention 8.8e12."""
    config = transformers.LlamaConfig(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
        vocab_size=128_256, max_position_embeddings=8192,
    )  # fmt: skip
    ledger = _forward(look, transformers.LlamaForCausalLM, config, input_ids=_ids(1, 4096))
    layer = 4096 * (_projections(4096, 32, 8, 128) + 2 * 3 * 4096 * 14336) + 2 * 2 * 4096**2 * 4096
    assert ledger.flops == 32 * layer + 2 * 4096 * 4096 * 128_256
    assert round(ledger.flops / 1e10) == 7_027


def test_qwen3_30b_a3b(look):
    """48 layers, 8 of 128 experts of width 768 for each of 4,096 tokens: 3.811e13."""
    config = transformers.Qwen3MoeConfig(
        hidden_size=2048, num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
        moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8, vocab_size=151_936, dtype=torch.bfloat16,
    )  # fmt: skip
    ledger = _forward(look, transformers.Qwen3MoeForCausalLM, config, input_ids=_ids(1, 4096))
    experts = 8 * 2 * 3 * 2048 * 768 + 2 * 2048 * 128
    layer = 4096 * (_projections(2048, 32, 4, 128) + experts) + 2 * 2 * 4096**2 * 32 * 128
    assert ledger.flops == 48 * layer + 2 * 4096 * 2048 * 151_936
    assert round(ledger.flops / 1e10) == 3_811
