"""The same step under another recipe: FLOPs by arithmetic, memory by what must go up or down."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.tracer import TraceError
from torchledger.tracer.whatif import Change, optimizer_named, what_if

B, T, D, L, V, H = 4, 16, 32, 4, 101, 4
HEAD = 2 * B * T * D * V
ATTENTION = 2 * (2 * B * T * T * D)
DOWN = 2 * B * T * 4 * D * D
BLOCK = 2 * B * T * (3 * D * D + D * D + 4 * D * D) + DOWN + ATTENTION
FORWARD = L * BLOCK + HEAD


class Block(nn.Module):
    """Attention and an MLP, each with its way around."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        """[b, t, d] -> [b, t, d]."""
        b, t, d = x.shape
        q, k, v = (each.view(b, t, H, d // H).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.down(functional.gelu(self.up(x)))


class Transformer(nn.Module):
    """Token ids [b, t] -> logits [b, t, v]."""

    def __init__(self):
        super().__init__()
        self.embedding, self.layers = nn.Embedding(V, D), nn.ModuleList(Block() for _ in range(L))
        self.head = nn.Linear(D, V)

    def forward(self, ids):
        """Logits."""
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def ids():
    """A batch of token ids."""
    return torch.zeros(B, T, dtype=torch.long)


def cross_entropy(logits, tokens):
    """The loss of `trace`."""
    return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


MODEL_FLOPS = 3 * FORWARD
#: the flash backward computes the scores again: one product of its two forward ones a layer
FIFTH = L * ATTENTION // 2


def _outcomes(changes, **options):
    options = {"loss": cross_entropy, "optimizer": torch.optim.AdamW, "steps": 2} | options
    return what_if(Transformer(), ids(), changes, **options)


def test_the_step_as_it_is_comes_first_and_names_are_kept():
    first, second = _outcomes({"half": {"micro_batch": B // 2}})
    assert (first.name, second.name) == ("as it is", "half")
    assert (first.model_flops, first.executed_flops) == (MODEL_FLOPS, MODEL_FLOPS + FIFTH)
    assert second.model_flops * 2 == first.model_flops
    assert second.peak_bytes < first.peak_bytes
    assert second.kept_bytes < first.kept_bytes


@pytest.mark.parametrize(
    ("change", "again"),
    [
        # early stop: the last product of a block is not needed for the backward pass and not computed again
        ({"checkpoint": "full"}, L * (BLOCK - DOWN)),
        ({"checkpoint": "full", "reentrant": True}, L * BLOCK),
        ({"checkpoint": 2}, L // 2 * (BLOCK - DOWN)),
        ({"checkpoint": "selective"}, 0),
        ({"checkpoint": ("aten.addmm.default", "aten.mm.default")}, L * ATTENTION),
    ],
)
def test_checkpointing_computes_again_what_it_does_not_keep(change, again):
    """Model FLOPs stay, executed FLOPs grow by the blocks' forward, memory that is kept shrinks."""
    plain, found = _outcomes([change])
    assert found.model_flops == plain.model_flops
    assert found.executed_flops - plain.executed_flops == again
    assert found.kept_bytes < plain.kept_bytes
    assert found.peak_bytes < plain.peak_bytes


def test_lengths_precision_and_gradients_that_stay():
    """Twice the tokens: projections twice, attention four times. bf16 keeps less. Zeroed gradients stay."""
    plain, longer, low, zeroed = _outcomes([{"sequence_length": 2 * T}, {"precision": "bf16"}, {"set_to_none": False}])
    assert longer.model_flops == 3 * (2 * FORWARD + 2 * L * ATTENTION)
    assert low.model_flops == plain.model_flops
    assert low.kept_bytes < plain.kept_bytes
    num_parameters = sum(p.numel() for p in Transformer().parameters())
    assert zeroed.peak_bytes - plain.peak_bytes <= 4 * num_parameters
    assert zeroed.peak_bytes > plain.peak_bytes


def test_accumulation_runs_the_batch_twice():
    plain, twice = _outcomes([{"accumulation_steps": 2}])
    assert twice.model_flops == 2 * plain.model_flops


def test_optimizers_by_name():
    """AdamW keeps two numbers a parameter, SGD none, momentum one; the loop needs no more than foreach."""
    num_parameters = sum(p.numel() for p in Transformer().parameters())
    names = ("adamw", "sgd", "momentum", "adamw:fused", "adamw:loop", "adafactor")
    _, adamw, sgd, momentum, fused, loop, adafactor = _outcomes([{"optimizer": name} for name in names])
    assert adamw.parts_bytes["optimizer state"] == 8 * num_parameters + _step_counts()
    assert "optimizer state" not in sgd.parts_bytes
    assert momentum.parts_bytes["optimizer state"] == 4 * num_parameters
    assert fused.peak_bytes <= loop.peak_bytes <= adamw.peak_bytes
    assert sgd.peak_bytes < adafactor.peak_bytes < adamw.peak_bytes


def _step_counts():
    """AdamW counts the steps of every parameter, 4 bytes each."""
    return 4 * len(list(Transformer().parameters()))


def test_offloading_takes_memory_from_the_device_to_the_host():
    """Optimizer state leaves as it is; saved tensors leave and come back."""
    plain, state, saved = _outcomes([{"offload": "optimizer"}, {"offload": "activations"}], target="cuda")
    num_parameters = sum(p.numel() for p in Transformer().parameters())
    assert state.host_bytes >= 8 * num_parameters
    assert "optimizer state" not in state.parts_bytes
    assert state.peak_bytes < plain.peak_bytes
    assert saved.kept_bytes < plain.kept_bytes
    assert saved.host_bytes > plain.host_bytes
    assert any("optimizer runs on the host" in line for line in state.assumptions)
    assert any("weights among them" in line for line in saved.assumptions)
    assert plain.reserved_bytes % (2 << 20) == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"chekpoint": "full"}, "no what-if 'chekpoint'. There are checkpoint,"),
        ({"optimizer": "lion"}, "no optimizer 'lion'. There are adamw,"),
        ({"optimizer": "adamw:fast"}, "no optimizer 'adamw:fast'"),
        ({"offload": "optimizer"}, "no other memory to offload to. Take target='cuda'"),
        ({"checkpoint": 0}, "every 0th block"),
        ({"checkpoint": ("aten.nothing",)}, "no operation 'aten.nothing'. Name it like aten.mm.default"),
        ({"checkpoint": "selective", "reentrant": True}, "keeps no operation's results"),
        ({"precision": "fp16"}, "fp16 is no precision to train in on a CPU"),
    ],
)
def test_impossible_changes(change, said):
    with pytest.raises(TraceError) as caught:
        _outcomes([change])
    assert said in str(caught.value)


def test_a_model_without_blocks_cannot_be_checkpointed():
    with pytest.raises(TraceError, match="no repeated blocks to checkpoint"):
        what_if(nn.Linear(D, D), torch.zeros(2, D), [{"checkpoint": "full"}], loss=lambda y, _: y.sum())


def test_the_model_is_as_it_was():
    """Checkpointing is put on copies only."""
    model = Transformer()
    what_if(model, ids(), [{"checkpoint": "full"}], loss=cross_entropy)
    assert all("forward" not in vars(module) for module in model.modules())


def test_a_change_in_words():
    assert Change().text == "as it is"
    assert Change(checkpoint=("aten.mm.default",), micro_batch=2).text == "checkpoint aten.mm.default, micro_batch 2"


def test_optimizers_are_torchs():
    made = optimizer_named("adamw:foreach")([nn.Parameter(torch.zeros(1))])
    assert type(made) is torch.optim.AdamW
    assert made.defaults["foreach"]
