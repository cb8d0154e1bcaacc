"""Parameter counts of published models, to the last one."""

import json
from pathlib import Path

import pytest

from torchledger.formula.parameters import (
    num_active_parameters,
    num_embedding_parameters,
    num_parameters,
    parameters,
)
from torchledger.spec import presets
from torchledger.spec.huggingface import from_config

BUILT = json.loads(Path(__file__).with_name("transformers_parameters.json").read_text(encoding="utf-8"))["models"]
#: Ours, and one that transformers has no class for.
NOT_BUILT = {"stdlib-small", "palm-540b"}

built = pytest.mark.parametrize("row", BUILT, ids=[row["preset"] for row in BUILT])


@built
def test_a_preset_has_the_parameters_that_transformers_builds(row):
    """A preset has exactly as many parameters as the published model built by transformers, embeddings likewise."""
    spec = presets.get(row["preset"])
    assert num_parameters(spec) == row["num_parameters"]
    assert num_embedding_parameters(spec) == row["num_embedding_parameters"]


@built
def test_folding_equal_layers_changes_no_count(row):
    """Named one by one, the parameters are as many as folded."""
    spec = presets.get(row["preset"])
    assert sum(each.total for each in parameters(spec, expand=True)) == row["num_parameters"]


@built
def test_a_config_json_gives_the_preset(row):
    """The published config.json, read directly, describes the same model as the preset of its name."""
    spec, preset = from_config(row["config"]), presets.get(row["preset"])
    parts = ("attention", "mlp", "norm", "position", "moe")
    sizes = ("vocab_size", "max_sequence_length", "num_layers", "hidden_size", "embedding_size", "final_logit_soft_cap")
    flags = ("parallel", "tied_embeddings", "head_bias", "embedding_norm", "embedding_scale")
    assert {name: getattr(spec, name) for name in (*parts, *sizes, *flags)} == {
        name: getattr(preset, name) for name in (*parts, *sizes, *flags)
    }


def test_every_published_preset_is_checked():
    """No preset is without a count got another way, apart from those named above."""
    assert set(presets.names()) - {row["preset"] for row in BUILT} == NOT_BUILT


def gpt2(V, P, L, D):
    """Token and position table; a layer's 12·D² weights and 13·D biases and norms; the final norm; a tied head."""
    return V * D + P * D + L * (12 * D * D + 13 * D) + 2 * D


def llama(V, L, D, H, K, F):  # noqa: PLR0917 - the sizes of a Llama in the order of its config
    """Embedding and head; query and output, key and value, gate-up-down, two norms a layer; the final norm."""
    return 2 * V * D + L * (2 * D * D + 2 * D * (D // H) * K + 3 * D * F + 2 * D) + D


@pytest.mark.parametrize(
    ("name", "published", "arithmetic"),
    [
        ("gpt2", 124_439_808, gpt2(50257, 1024, 12, 768)),
        ("gpt2-xl", 1_557_611_200, gpt2(50257, 1024, 48, 1600)),
        ("llama-2-7b", 6_738_415_616, llama(32000, 32, 4096, 32, 32, 11008)),
        ("llama-3-8b", 8_030_261_248, llama(128256, 32, 4096, 32, 8, 14336)),
        ("llama-3-70b", 70_553_706_496, llama(128256, 80, 8192, 64, 8, 28672)),
        ("llama-3.1-405b", 405_853_388_800, llama(128256, 126, 16384, 128, 8, 53248)),
        ("tinyllama-1.1b", 1_100_048_384, llama(32000, 22, 2048, 32, 4, 5632)),
    ],
)
def test_famous_counts_are_right_to_the_last_one(name, published, arithmetic):
    """The counts that everybody knows follow from the sizes by hand, and the preset gives them."""
    assert num_parameters(presets.get(name)) == published == arithmetic


def test_palm_has_540_billion():
    """PaLM's paper says 540.35 billion (arXiv:2204.02311, table 1), from sizes that it gives in full."""
    V, L, D, F, wide, narrow = 256_000, 118, 18_432, 73_728, 48 * 256, 256
    by_hand = V * D + L * (2 * D * wide + 2 * D * narrow + 3 * D * F + D) + D
    assert num_parameters(presets.get("palm-540b")) == by_hand == pytest.approx(540.35e9, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "active", "with_table", "source"),
    [
        ("mixtral-8x7b", 12.9e9, True, "https://mistral.ai/news/mixtral-of-experts"),
        ("qwen3-30b-a3b", 3.3e9, True, "https://huggingface.co/Qwen/Qwen3-30B-A3B"),
        ("qwen1.5-moe-a2.7b", 2.7e9, True, "https://qwenlm.github.io/blog/qwen-moe/"),
        ("deepseek-v2-lite", 2.4e9, False, "https://arxiv.org/abs/2405.04434, appendix B"),
        ("deepseek-v2", 21e9, False, "https://arxiv.org/abs/2405.04434, abstract"),
        ("deepseek-v3", 37e9, False, "https://arxiv.org/abs/2412.19437, abstract"),
    ],
)
def test_published_active_parameters(name, active, with_table, source):
    """Active parameters are those published, within 2.5 % of figures that are rounded to two digits.

    DeepSeek leaves the table of token embeddings out of its figure, the others have it in theirs.
    """
    spec = presets.get(name)
    table = 0 if with_table else num_embedding_parameters(spec)
    assert num_active_parameters(spec) - table == pytest.approx(active, rel=0.025), source
