"""Folding changes nothing: the trace with equal layers run a few times is the trace with all of them run.

Equal means equal: every line of the ledger, every call, every block with its two events, every mark.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from torchledger import spec
from torchledger.spec import OptimizerSpec, Recipe
from torchledger.tracer import Trace, trace, trace_step
from torchledger.trainer.step import build_step, example_batch


class Block(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        """Around the residual stream."""
        return x + self.dropout(self.down(functional.gelu(self.up(self.norm(x)))))


class Net(nn.Module):
    """Nine equal blocks, joined as `how` says."""

    def __init__(self, how: str = "plain", dropout: float = 0.0) -> None:
        super().__init__()
        self.how = how
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 50, bias=False)
        self.layers = nn.ModuleList(Block(dropout) for _ in range(9))
        if how == "tied":
            self.head.weight = self.embedding.weight

    def forward(self, ids):
        """The loss."""
        x = first = self.embedding(ids)
        outputs = []
        for number, layer in enumerate(self.layers):
            x = self._joined(layer, x, first, number)
            if self.how == "a layer's output used twice":
                outputs.append(x)
        if outputs:
            x = x + outputs[2]
        return functional.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())

    def _joined(self, layer, x, first, number):
        match self.how:
            case "recomputed":
                return checkpoint(layer, x, use_reentrant=False)
            case "recomputed, reentrant":
                return checkpoint(layer, x, use_reentrant=True)
            case "scaled between":
                return layer(x * 0.5)
            case "added between":
                return layer(x) + first
            case "every second otherwise":
                return layer(x) if number % 2 else layer(x) + 1
            case _:
                return layer(x)


FOLDED = ("plain", "tied", "recomputed", "scaled between", "added between")
IN_FULL = ("recomputed, reentrant", "every second otherwise", "a layer's output used twice")
IDS = torch.zeros(2, 7, dtype=torch.int64)
OPTIMIZERS = {
    "loop": lambda p: torch.optim.AdamW(p, foreach=False),
    "foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
    "momentum": lambda p: torch.optim.SGD(p, momentum=0.9),
}


def is_folded(seen: Trace) -> bool:
    return not any("in full" in assumption for assumption in seen.assumptions)


def assert_equal(folded: Trace, full: Trace) -> None:
    assert list(folded.ledger) == list(full.ledger)
    assert folded.calls == full.calls
    assert folded.timeline.blocks == full.timeline.blocks
    assert folded.timeline == full.timeline
    assert folded.first_call == full.first_call
    assert folded.num_parameters == full.num_parameters


def both(model, batch, **options) -> tuple[Trace, Trace]:
    return trace(model, batch, **options), trace(model, batch, fold=False, **options)


@pytest.mark.parametrize("how", FOLDED + IN_FULL)
def test_layers_joined_in_any_way(how):
    """What is not periodic is run in full, and said."""
    folded, full = both(Net(how), IDS, optimizer=torch.optim.AdamW)
    assert_equal(folded, full)
    assert is_folded(folded) is (how in FOLDED)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    "options", [{"gradient_clip": 1.0}, {"precision": "bf16", "accumulation_steps": 3, "set_to_none": False}]
)
def test_every_optimizer_with_clipping_and_accumulation(optimizer, options):
    """All parameters have gradients and state, those of layers that were left out too."""
    folded, full = both(Net(dropout=0.1), IDS, optimizer=OPTIMIZERS[optimizer], **options)
    assert_equal(folded, full)
    assert is_folded(folded)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 16), *[Block() for _ in range(9)], nn.Linear(16, 2)),
        nn.Sequential(nn.Linear(4, 16), *[m for _ in range(9) for m in (nn.Linear(16, 16), nn.ReLU())]),
        nn.Sequential(
            nn.Linear(4, 16), nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 8)
        ),
    ],
    ids=["between others", "two layers a unit", "torch's own encoder"],
)
def test_sequences(model):
    """A run may stand between other layers, and its unit may be of several."""
    folded, full = both(model, torch.zeros(2, 7, 4), loss=lambda out, _: out.mean(), optimizer=torch.optim.AdamW)
    assert_equal(folded, full)
    assert is_folded(folded)


def test_two_runs_in_one_model():
    """Encoder and decoder: every decoder layer adds to the gradient of the encoder's output."""
    model = nn.Transformer(16, 2, 7, 9, 32, batch_first=True)
    batch = (torch.zeros(2, 7, 16), torch.zeros(2, 5, 16))
    folded, full = both(model, batch, loss=lambda out, _: out.mean(), optimizer=torch.optim.AdamW)
    assert_equal(folded, full)
    assert is_folded(folded)


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("llama-3.2-1b", Recipe(sequence_length=32, precision="bf16", recompute="full")),
        ("llama-3.2-1b", Recipe(sequence_length=32, attention="math", optimizer=OptimizerSpec(implementation="loop"))),
        ("gpt2", Recipe(sequence_length=32, batch_size=2, accumulation_steps=2)),
        ("gemma-2-2b", Recipe(sequence_length=32, precision="bf16")),
        ("bloom-560m", Recipe(sequence_length=32)),
        ("olmo-2-1b", Recipe(sequence_length=32, optimizer=OptimizerSpec(kind="sgd", implementation="foreach"))),
    ],
    ids=lambda value: value if isinstance(value, str) else value.precision,
)
def test_the_trainers_own_step(name, recipe):
    """Full-size models on no memory; Gemma 2 alternates two kinds of mask over equal layers."""

    def build():
        step, numbers = build_step(spec.load(name), recipe, initialized=False), itertools.count()
        batch = example_batch(recipe)
        return lambda: step(batch, next(numbers))

    folded, full = trace_step(build), trace_step(build, fold=False)
    assert_equal(folded, full)
    assert is_folded(folded)


HUGGING_FACE = {
    "LlamaConfig": {"num_key_value_heads": 2},
    "MixtralConfig": {"num_key_value_heads": 2, "num_local_experts": 4},
    "Qwen3Config": {"num_key_value_heads": 2, "head_dim": 8},
}


@pytest.mark.parametrize("name", HUGGING_FACE)
@pytest.mark.parametrize("recomputed", [False, True])
def test_hugging_face_models(name, recomputed):
    """Layers that know their number are equal but for that, which is told."""
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, name)(
        num_hidden_layers=9,
        hidden_size=32,
        intermediate_size=48,
        num_attention_heads=4,
        vocab_size=64,
        **HUGGING_FACE[name],
    )
    model = transformers.AutoModelForCausalLM.from_config(config).train()
    if recomputed:
        new, old = "activation_checkpointing_enable", "gradient_checkpointing_enable"
        getattr(model, new if hasattr(model, new) else old)()
    batch = {"input_ids": IDS, "labels": IDS}
    folded, full = both(model, batch, optimizer=torch.optim.AdamW, precision="bf16", gradient_clip=1.0)
    assert_equal(folded, full)
    assert is_folded(folded)
    assert any("equal but for their number" in assumption for assumption in folded.assumptions)


class Flagged(Block):
    """A block that a buffer turns off."""

    def __init__(self, *, is_on):
        super().__init__()
        self.register_buffer("is_on", torch.tensor([is_on]))

    def forward(self, x):
        """Nothing where it is off."""
        return super().forward(x) if self.is_on.all() else x


def test_layers_whose_flags_differ_are_not_equal():
    """Of twelve layers the seventh is off: it is not counted with the others."""
    model = nn.Sequential(*[Flagged(is_on=number != 6) for number in range(12)])
    folded, full = both(model, torch.zeros(2, 16), loss=lambda x, _: x.mean())
    assert_equal(folded, full)
    assert full.ledger.where(phase="forward", kind="matmul").flops == 11 * 2 * 2 * 2 * 16 * 32
