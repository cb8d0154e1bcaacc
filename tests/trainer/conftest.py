"""A tiny run that every test of the trainer can start: three layers of data, two of model."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, NormSpec, OptimizerSpec, PositionSpec, Recipe
from torchledger.trainer.loop import new_run, train
from torchledger.trainer.prepare import prepare
from torchledger.trainer.run_config import RunConfig, SampleConfig
from torchledger.trainer.setup import resolve

TINY = ModelSpec("tiny", 257, 32, 2, 32, AttentionSpec(4), MlpSpec(48))

LATENT = AttentionSpec(
    4, kind="latent", query_rank=8, key_value_rank=12, rotary_head_size=4, plain_head_size=8, value_head_size=6
)
MOE = MoeSpec(4, 2, 16)


def _varied(**fields):
    return replace(TINY, **fields)


def _attention(**fields):
    return replace(TINY, attention=replace(TINY.attention, **fields))


#: One model for every field of a spec that changes what is built.
SPECS = {
    "llama": TINY,
    "gqa": _attention(num_key_value_heads=2),
    "mqa": _attention(num_key_value_heads=1),
    "head-size": _attention(head_size=12),
    "biases": replace(
        _attention(query_bias=True, key_bias=True, value_bias=True, output_bias=True),
        mlp=MlpSpec(48, "plain", "gelu", up_bias=True, down_bias=True),
        head_bias=True,
    ),
    "head-norm": _attention(query_key_norm="head", num_key_value_heads=2),
    "full-norm": _attention(query_key_norm="full", num_key_value_heads=2),
    "soft-caps": replace(_attention(logit_soft_cap=3.0), final_logit_soft_cap=5.0),
    "windows": _attention(window_pattern=(4, 0)),
    "scale": _attention(scale=0.2),
    "clip": _attention(clip=0.5),
    "dropout": _attention(dropout=0.1),
    "alibi": _varied(position=PositionSpec("alibi")),
    "alibi-window": replace(_attention(window_pattern=(4, 0)), position=PositionSpec("alibi")),
    "learned": _varied(position=PositionSpec("learned", offset=2)),
    "no-positions": _varied(position=PositionSpec("none")),
    "partial-rotary": _varied(position=PositionSpec(rotary_fraction=0.5)),
    "local-theta": replace(_attention(window_pattern=(4, 0)), position=PositionSpec(local_theta=10.0)),
    "scaled-rotary": _varied(position=PositionSpec(scaling={"kind": "linear", "factor": 2.0})),
    "layer-norm": _varied(norm=NormSpec("layer", bias=True)),
    "no-weight-norm": _varied(norm=NormSpec("layer", affine=False)),
    "unit-offset": _varied(norm=NormSpec(unit_offset=True)),
    "post": _varied(norm=NormSpec(placement="post")),
    "sandwich": _varied(norm=NormSpec(placement="sandwich")),
    "residual": _varied(norm=NormSpec("layer", bias=True, placement="residual", final=False)),
    "parallel": _varied(parallel=True),
    "parallel-shared": _varied(parallel=True, norm=NormSpec("layer", bias=True, shared=True)),
    "relu": _varied(mlp=MlpSpec(48, "plain", "relu")),
    "relu-squared": _varied(mlp=MlpSpec(48, "plain", "relu_squared")),
    "geglu": _varied(mlp=MlpSpec(48, "gated", "gelu_tanh")),
    "tied": _varied(tied_embeddings=True, embedding_scale=True),
    "embedding-norm": _varied(embedding_norm=True, norm=NormSpec("layer", bias=True)),
    "embedding-size": _varied(embedding_size=16, tied_embeddings=True),
    "latent": _varied(attention=LATENT),
    "latent-plain-query": _varied(attention=replace(LATENT, query_rank=0)),
    "moe": _varied(moe=replace(MOE, shared_intermediate_size=8, shared_gate=True, num_leading_dense_layers=1)),
    "moe-sigmoid": _varied(moe=replace(MOE, router_bias=True, scoring="sigmoid", normalize_weights=False)),
    "moe-parallel": _varied(moe=MOE, parallel=True),
}


@pytest.fixture(scope="session")
def tiny():
    """A Llama of 24,000 parameters over bytes."""
    return TINY


@pytest.fixture
def specs():
    """All models by their names."""
    return SPECS


@pytest.fixture(params=SPECS.values(), ids=SPECS.keys())
def any_spec(request):
    """Each of the models in turn."""
    return request.param


@pytest.fixture
def batch():
    """Inputs and targets, four rows of sixteen."""
    ids = torch.randint(0, TINY.vocab_size, (4, 17), generator=torch.Generator().manual_seed(0))
    return ids[:, :-1], ids[:, 1:]


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory):
    """Prepared data: 32 small texts as bytes."""
    source = tmp_path_factory.mktemp("source")
    for i in range(32):
        (source / f"{i}.txt").write_text("".join(f"line {i * j % 97} of text {i}\n" for j in range(12)))
    return prepare(source, tmp_path_factory.mktemp("data"), tokenizer="bytes", validation_fraction=0.2).folder


@pytest.fixture
def config(data_folder, tmp_path):
    """A run of eight steps that evaluates every third and saves every second."""
    return RunConfig(
        TINY,
        data_folder,
        Recipe(batch_size=4, sequence_length=16, optimizer=OptimizerSpec(learning_rate=1e-2, warmup_steps=2)),
        num_steps=8,
        runs=tmp_path / "runs",
        num_threads=1,
        eval_interval=3,
        eval_batches=2,
        checkpoint_interval=2,
        sample=SampleConfig(length=4),
    )


@pytest.fixture
def one_thread():
    """Torch on one thread, as it was afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def run(one_thread):
    """Train a configuration to its end in a new folder: (folder, events)."""

    def run(config: RunConfig, path: Path | None = None, **options):
        setup = resolve(config)
        folder = new_run(setup, path)
        return folder, list(train(setup, folder, **options))

    return run
