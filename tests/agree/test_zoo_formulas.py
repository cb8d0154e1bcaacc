"""FLOPs of the main families by hand: what each configuration comes to, written out, is what docs/zoo.csv holds.

test_zoo.py proves the table equal to the trace and to the derivation from the models' own calls; this is a third way,
which runs nothing.
"""

import itertools

import pytest

pytest.importorskip("transformers")

from zoo.row import rows


def _linear(tokens, *widths):
    """A chain of matrices, 2 FLOPs a multiply-add."""
    return sum(2 * tokens * before * after for before, after in itertools.pairwise(widths))


def _attention(batch, heads, queries, keys, width, value_width=None):  # noqa: PLR0917  # what attention is made of
    """Scores and weighted values over all pairs."""
    return 2 * batch * heads * queries * keys * (width + (value_width or width))


def _gated(batch, length, d, heads, kv_heads, width, inner, vocabulary, layers, experts=(0, 1)):  # noqa: PLR0917  # as a config has it
    """Llama and those like it; `experts`: how many a router chooses among, and how many it chooses (all of them: 1)."""
    tokens, total, chosen = batch * length, *experts
    projections = _linear(tokens, d, (heads + 2 * kv_heads) * width) + _linear(tokens, heads * width, d)
    layer = projections + _attention(batch, heads, length, length, width) + 3 * chosen * _linear(tokens, d, inner)
    return layers * (layer + _linear(tokens, d, total)) + _linear(tokens, d, vocabulary)


def _plain(batch, length, d, heads, inner):
    """A layer of BERT, GPT-2 or ViT: four square projections, attention, two matrices."""
    tokens = batch * length
    return (
        4 * _linear(tokens, d, d) + _attention(batch, heads, length, length, d // heads) + _linear(tokens, d, inner, d)
    )


def _crossed(batch, length, source, d, heads, inner):  # noqa: PLR0917  # as above
    """A decoder's layer that attends to `source` tokens of an encoder too."""
    across = 2 * _linear(batch * length, d, d) + 2 * _linear(batch * source, d, d)
    return _plain(batch, length, d, heads, inner) + across + _attention(batch, heads, length, source, d // heads)


def _latent(batch, length, *, d, heads, q_rank, kv_rank, widths, vocabulary, dense, sparse):
    """DeepSeek: `widths` without position, with, of values; `dense` and `sparse`: layers and their inner widths."""
    tokens, (plain, rotated, values) = batch * length, widths
    queries = _linear(tokens, d, q_rank, heads * (plain + rotated))
    latents = _linear(tokens, d, kv_rank + rotated) + _linear(tokens, kv_rank, heads * (plain + values))
    scores = _attention(batch, heads, length, length, plain + rotated, values)
    layer = queries + latents + scores + _linear(tokens, heads * values, d)
    (num_dense, inner), (num_sparse, inner_expert, experts, chosen_and_shared) = dense, sparse
    routed = _linear(tokens, d, experts) + 3 * chosen_and_shared * _linear(tokens, d, inner_expert)
    mlps = num_dense * 3 * _linear(tokens, d, inner) + num_sparse * routed
    return (num_dense + num_sparse) * layer + mlps + _linear(tokens, d, vocabulary)


def _mamba2(batch, length, *, d, heads, width, state, groups, chunk, vocabulary, layers):
    """Projections, a convolution of width 4 that pads 3, and the scan in chunks as state space duality has it."""
    tokens, inner = batch * length, heads * width
    channels = inner + 2 * groups * state
    projections = _linear(tokens, d, inner + channels + heads) + _linear(tokens, inner, d)
    convolution = 2 * batch * channels * (length + 3) * 4
    chunks = length // chunk
    within = 2 * batch * chunks * heads * chunk * chunk * (state + width)  # C·Bᵀ, and that times x
    states = 2 * (2 * batch * chunks * heads * chunk * state * width)  # into a chunk's state, and out of it
    between = 2 * batch * heads * (chunks + 1) ** 2 * state * width  # all chunks before, and the state at the start
    return layers * (projections + convolution + within + states + between) + _linear(tokens, d, vocabulary)


def _patches(images, side, patch, d):
    return _linear(images * (side // patch) ** 2, 3 * patch * patch, d)


#: Model, size, FLOPs forward, and those of them whose input is data and gets no gradient.
BY_HAND = [
    ("Llama 3", "tiny", _gated(2, 16, 32, 4, 2, 8, 64, 128, 2), 0),
    ("Llama 3", "llama-3-8b", _gated(1, 2048, 4096, 32, 8, 128, 14336, 128256, 32), 0),
    ("Qwen3", "qwen3-8b", _gated(1, 2048, 4096, 32, 8, 128, 12288, 151936, 36), 0),
    ("Gemma 3", "gemma-3-1b", _gated(1, 2048, 1152, 4, 1, 256, 6912, 262144, 26), 0),
    ("OLMo 2", "olmo-2-7b", _gated(1, 2048, 4096, 32, 32, 128, 11008, 100352, 32), 0),
    ("Phi-3", "phi-3-mini", _gated(1, 2048, 3072, 32, 32, 96, 8192, 32064, 32), 0),
    ("Mixtral", "tiny", _gated(2, 16, 32, 4, 2, 8, 64, 128, 2, experts=(4, 2)), 0),
    ("Mixtral", "mixtral-8x7b", _gated(1, 2048, 4096, 32, 8, 128, 14336, 32000, 32, experts=(8, 2)), 0),
    ("Qwen3-MoE", "qwen3-30b-a3b", _gated(1, 2048, 2048, 32, 4, 128, 768, 151936, 48, experts=(128, 8)), 0),
    ("gpt-oss", "gpt-oss-20b", _gated(1, 2048, 2880, 64, 8, 64, 2880, 201088, 24, experts=(32, 4)), 0),
    ("GPT-2", "tiny", 2 * _plain(2, 16, 32, 4, 4 * 32) + _linear(2 * 16, 32, 128), 0),
    ("GPT-2", "gpt2", 12 * _plain(1, 1024, 768, 12, 4 * 768) + _linear(1024, 768, 50257), 0),
    ("BLOOM", "bloom-7.1b", 30 * _plain(1, 2048, 4096, 32, 4 * 4096) + _linear(2048, 4096, 250880), 0),
    ("BERT", "tiny", 2 * _plain(2, 16, 32, 4, 64) + _linear(2 * 16, 32, 32, 128), 0),
    ("BERT", "bert-base", 12 * _plain(1, 512, 768, 12, 3072) + _linear(512, 768, 768, 30522), 0),
    ("T5", "tiny", 2 * (_plain(2, 16, 32, 4, 64) + _crossed(2, 8, 16, 32, 4, 64)) + _linear(2 * 8, 32, 128), 0),
    (
        "T5",
        "t5-small",
        6 * (_plain(1, 512, 512, 8, 2048) + _crossed(1, 512, 512, 512, 8, 2048)) + _linear(512, 512, 32128),
        0,
    ),
    (
        "ViT",
        "tiny",
        2 * _plain(2, 16 + 1, 32, 4, 64) + _patches(2, 16, 4, 32) + _linear(2, 32, 2),
        _patches(2, 16, 4, 32),
    ),
    (
        "ViT",
        "vit-base-patch16",
        12 * _plain(1, 14 * 14 + 1, 768, 12, 3072) + _patches(1, 224, 16, 768) + _linear(1, 768, 1000),
        _patches(1, 224, 16, 768),
    ),
    (
        "Whisper",
        "tiny",  # 32 frames of 8 bands, the second convolution takes every other one
        2 * (_plain(2, 16, 32, 4, 64) + _crossed(2, 8, 16, 32, 4, 64))
        + _linear(2 * 32, 3 * 8, 32) + _linear(2 * 16, 3 * 32, 32) + _linear(2 * 8, 32, 128),
        _linear(2 * 32, 3 * 8, 32),
    ),
    (
        "Whisper",
        "whisper-tiny",
        4 * (_plain(1, 1500, 384, 6, 1536) + _crossed(1, 448, 1500, 384, 6, 1536))
        + _linear(3000, 3 * 80, 384) + _linear(1500, 3 * 384, 384) + _linear(448, 384, 51865),
        _linear(3000, 3 * 80, 384),
    ),
    (
        "CLIP",
        "tiny",  # 4 texts of 8 tokens, 4 images of 16 patches and a class token, each against each
        2 * (_plain(4, 8, 32, 4, 64) + _plain(4, 16 + 1, 32, 4, 64)) + _patches(4, 16, 4, 32)
        + 2 * _linear(4, 32, 16) + _linear(4, 16, 4),
        _patches(4, 16, 4, 32),
    ),
    (
        "DeepSeek-V3",
        "tiny",
        _latent(
            2, 16, d=32, heads=4, q_rank=16, kv_rank=8, widths=(8, 4, 8), vocabulary=128, dense=(1, 64),
            sparse=(1, 16, 4, 2 + 1),
        ),
        0,
    ),
    (
        "DeepSeek-V3",
        "deepseek-v3",
        _latent(
            1, 2048, d=7168, heads=128, q_rank=1536, kv_rank=512, widths=(128, 64, 128), vocabulary=129280,
            dense=(3, 18432), sparse=(58, 2048, 256, 8 + 1),
        ),
        0,
    ),
    (
        "Mamba2",
        "tiny",
        _mamba2(2, 16, d=32, heads=8, width=8, state=8, groups=2, chunk=8, vocabulary=128, layers=2),
        0,
    ),
    (
        "Mamba2",
        "mamba2-130m",
        _mamba2(1, 2048, d=768, heads=24, width=64, state=128, groups=1, chunk=256, vocabulary=50288, layers=24),
        0,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "size", "forward", "of_data"), BY_HAND, ids=lambda x: x if isinstance(x, str) else ""
)
def test_the_table_is_what_the_configuration_comes_to(model, size, forward, of_data):
    """Forward as written out; backward twice that, less the gradients of data, which nobody asks for."""
    entry = rows()[model, size]
    assert int(entry["forward_flops"]) == forward
    assert int(entry["backward_flops"]) == 2 * forward - of_data


#: Parameters as the papers and model cards have them.
PUBLISHED = {
    ("Llama 3", "llama-3-8b"): 8_030_261_248,
    ("Qwen3", "qwen3-8b"): 8_190_735_360,
    ("Gemma 3", "gemma-3-1b"): 999_885_952,
    ("Qwen3-MoE", "qwen3-30b-a3b"): 30_532_122_624,
    ("gpt-oss", "gpt-oss-20b"): 20_914_757_184,
    ("DeepSeek-V3", "deepseek-v3"): 671_026_404_352,  # without the head that predicts a second token
    ("Mixtral", "mixtral-8x7b"): 46_702_792_704,
    ("OLMo 2", "olmo-2-7b"): 7_298_617_344,
    ("OLMoE", "olmoe-1b-7b"): 6_919_161_856,
    ("Mamba2", "mamba2-130m"): 128_989_632,
    ("Falcon Mamba", "falcon-mamba-7b"): 7_272_665_088,
    ("RecurrentGemma", "recurrentgemma-2b"): 2_682_862_080,
    ("BERT", "bert-base"): 109_514_298,
    ("T5", "t5-small"): 60_506_624,
    ("ViT", "vit-base-patch16"): 86_567_656,
    ("ResNet", "resnet-50"): 25_557_032,
    ("ConvNeXt", "convnext-tiny"): 28_589_128,
    ("EfficientNet", "efficientnet-b7"): 66_347_960,
    ("Whisper", "whisper-tiny"): 37_760_640,
    ("CLIP", "clip-vit-base-patch32"): 151_277_313,
    ("LLaVA", "llava-1.5-7b"): 7_063_427_072,
    ("PaliGemma", "paligemma-3b"): 2_923_466_480,
}


@pytest.mark.parametrize("key", PUBLISHED, ids=" ".join)
def test_a_published_size_has_its_parameters(key):
    assert int(rows()[key]["num_parameters"]) == PUBLISHED[key]
