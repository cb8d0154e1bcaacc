"""Loops over experts, where a traced step has no router's values."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.tracer import trace
from torchledger.tracer.errors import TraceError

TOKENS, D, EXPERTS, CHOSEN = 10, 6, 4, 2


class Experts(nn.Module):
    """A loop over the experts that were chosen, as transformers has it: classes, chosen and tokens in one mask."""

    def __init__(self, *, by_value):
        super().__init__()
        self.num_experts, self.by_value = EXPERTS, by_value
        self.weight = nn.Parameter(torch.zeros(EXPERTS, D, D))

    def forward(self, x, chosen):
        """Each token through the experts that were chosen for it."""
        mask = functional.one_hot(chosen, EXPERTS).permute(2, 1, 0)
        hit = torch.greater(mask.sum((-1, -2)), 0).nonzero() if self.by_value else [[e] for e in range(EXPERTS)]
        y = torch.zeros_like(x)
        for expert in hit:
            _, token = torch.where(mask[expert[0]])
            y.index_add_(0, token, x[token] @ self.weight[expert[0]])
        return y


class Mixture(nn.Module):
    """A router and its experts."""

    def __init__(self, *, by_value=True):
        super().__init__()
        self.router, self.experts = nn.Linear(D, EXPERTS, bias=False), Experts(by_value=by_value)

    def forward(self, x):
        """Two experts for each token."""
        return self.experts(x, self.router(x).topk(CHOSEN).indices)


def _seen(by_value=True, **options):
    return trace(Mixture(by_value=by_value), torch.zeros(TOKENS, D), loss=lambda y, _: y.mean(), **options)


@pytest.mark.parametrize("by_value", [True, False])
def test_tokens_are_shared_out_evenly(by_value):
    """20 choices among 4 experts: 5 rows of each; forward, and the weight's gradient. It is said."""
    seen = _seen(by_value)
    forward = seen.ledger.where(phase="forward", module="experts", kind="matmul")
    assert sorted(dict(line.shape)["m"] for line in forward for _ in range(line.times)) == [5, 5, 5, 5]
    experts = seen.ledger.where(module="experts")
    assert experts.flops == 2 * (2 * TOKENS * CHOSEN * D * D)
    assert [text for text in seen.assumptions if "experts" in text] == [
        "a loop over 4 experts: each gets an equal share of the tokens (which ones is data)"
    ]


@pytest.mark.parametrize(("by_value", "rows"), [(True, [1, 7, 12]), (False, [0, 1, 7, 12])])
def test_given_counts(by_value, rows):
    """One expert may get none, and is not run where the loop asks which were chosen; the total is what it was."""
    seen = _seen(by_value, expert_tokens=[12, 0, 7, 1])
    forward = seen.ledger.where(phase="forward", module="experts", kind="matmul")
    assert sorted(dict(line.shape)["m"] for line in forward) == rows
    assert seen.ledger.where(module="experts").flops == 2 * (2 * TOKENS * CHOSEN * D * D)
    assert "a loop over 4 experts: tokens by the given counts" in seen.assumptions


@pytest.mark.parametrize("counts", [[20], [5, 5, 5, 4], [5, 5, 5, 6]])
def test_counts_of_another_layer_are_refused(counts):
    """The message names the module, what was given and what there is."""
    with pytest.raises(TraceError, match="the layer has 20 on 4 in module `experts`"):
        _seen(expert_tokens=counts)


class Loop(nn.Module):
    """A router, experts as modules, and one of the loops that people write over them."""

    def __init__(self, loop, chosen=CHOSEN):
        super().__init__()
        self.gate = nn.Linear(D, EXPERTS, bias=False)
        self.experts = nn.ModuleList(nn.Linear(D, D, bias=False) for _ in range(EXPERTS))
        self.loop, self.chosen = loop, chosen

    def forward(self, x):
        """Each token through its experts."""
        weights, chosen = self.gate(x).softmax(-1).topk(self.chosen, -1)
        return self.loop(x, weights, chosen, self.experts)


def _by_classes(x, weights, chosen, experts):  # Mixtral
    mask, y = functional.one_hot(chosen, EXPERTS).permute(2, 1, 0), torch.zeros_like(x)
    for number, expert in enumerate(experts):
        place, token = torch.where(mask[number])
        y.index_add_(0, token, expert(x[None, token].reshape(-1, D)) * weights[token, place, None])
    return y


def _by_boolean_mask(x, weights, chosen, experts):  # DeepSeek, training
    flat, rows = chosen.view(-1), x.repeat_interleave(CHOSEN, dim=0)
    y = torch.empty_like(rows)
    for number, expert in enumerate(experts):
        y[flat == number] = expert(rows[flat == number])
    return (y.view(*weights.shape, -1) * weights.unsqueeze(-1)).sum(1)


def _by_ends(x, weights, chosen, experts):  # DeepSeek-V2, inference
    order = chosen.view(-1).argsort()
    ends, token, y = chosen.view(-1).bincount(minlength=EXPERTS).cpu().numpy().cumsum(0), order // CHOSEN, x * 0
    for number, end in enumerate(ends):
        begin = 0 if number == 0 else ends[number - 1]
        if begin != end:
            rows = token[begin:end]
            y.index_add_(0, rows, experts[number](x[rows]) * weights.view(-1)[order[begin:end], None])
    return y


def _by_scattered_counts(x, weights, chosen, experts):  # DeepSeek-V3, inference
    counts = chosen.new_zeros((chosen.shape[0], EXPERTS)).scatter_(1, chosen, 1).sum(dim=0)
    return _split(x, weights, chosen, experts, [int(count) for count in counts.cpu().numpy()])


def _by_histogram(x, weights, chosen, experts):
    counts = torch.histc(chosen.view(-1).float(), bins=EXPERTS, min=0, max=EXPERTS - 1)
    return _split(x, weights, chosen, experts, counts.int().tolist())


def _by_bincount(x, weights, chosen, experts):
    return _split(x, weights, chosen, experts, torch.bincount(chosen.flatten(), minlength=EXPERTS).tolist())


def _by_summed_classes(x, weights, chosen, experts):
    counts = functional.one_hot(chosen.flatten(), EXPERTS).sum(0)
    return _split(x, weights, chosen, experts, counts.tolist())


def _split(x, weights, chosen, experts, counts):
    rows = x.repeat_interleave(CHOSEN, 0)[chosen.view(-1).argsort()].split(counts)
    return torch.cat([expert(part) for expert, part in zip(experts, rows, strict=True)]) * weights.view(-1, 1)


def _by_tokens(x, weights, chosen, experts):
    y = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        mask = (chosen == number).any(-1)
        if mask.any():
            rows = mask.nonzero(as_tuple=False).squeeze(-1)
            assert rows.shape == (int(mask.sum()),)
            y[rows] += expert(x[rows]) * weights[rows, :1]
    return y


def _by_column(x, weights, chosen, experts):
    y = torch.zeros_like(x)
    for number, expert in enumerate(experts):
        rows = (chosen == number).nonzero()[:, 0]
        if rows.numel() > 0:
            y.index_add_(0, rows, expert(x[rows]) * weights[rows, :1])
    return y


def _by_each_class(x, weights, chosen, experts):
    y = torch.zeros_like(x)
    for expert, mask in zip(experts, functional.one_hot(chosen, EXPERTS).sum(1).t(), strict=True):
        y[mask > 0] += expert(x[mask > 0]) * weights[mask > 0, :1]
    return y


LOOPS = [
    _by_classes, _by_boolean_mask, _by_ends, _by_scattered_counts, _by_histogram, _by_bincount, _by_summed_classes,
    _by_tokens, _by_column, _by_each_class,
]  # fmt: skip


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("loop", LOOPS)
def test_loops_that_people_write(loop, target):
    """20 choices among 4 experts: 5 rows of each, forward and both gradients, whichever way the loop asks."""
    seen = trace(Loop(loop), torch.zeros(TOKENS, D), loss=lambda y, _: y.mean(), target=target)
    experts = seen.ledger.where(lambda line: line.module.startswith("experts"), kind="matmul")
    rows = [dict(line.shape)["m"] for line in experts if line.phase == "forward" for _ in range(line.times)]
    assert rows == [5, 5, 5, 5]
    # What enters an expert here is the batch, which needs no gradient.
    assert experts.flops == 2 * (2 * TOKENS * CHOSEN * D * D)
    assert (
        seen.assumptions.count("a loop over 4 experts: each gets an equal share of the tokens (which ones is data)")
        == 1
    )


@pytest.mark.parametrize("loop", LOOPS)
def test_loops_by_given_counts(loop):
    """An expert without tokens is skipped where the loop asks, and costs nothing where it does not."""
    seen = trace(Loop(loop), torch.zeros(TOKENS, D), loss=lambda y, _: y.mean(), expert_tokens=[9, 0, 7, 4])
    experts = seen.ledger.where(lambda line: line.module.startswith("experts"), kind="matmul")
    rows = [dict(line.shape)["m"] for line in experts if line.phase == "forward" for _ in range(line.times)]
    assert [number for number in rows if number] == [9, 7, 4]
    assert experts.flops == 2 * (2 * TOKENS * CHOSEN * D * D)


def test_a_mask_takes_the_places_that_it_finds():
    """`x[mask]` runs `nonzero` and keeps [5] places of 8 bytes; so does the kernel of a real run."""
    seen = trace(Loop(_by_boolean_mask), torch.zeros(TOKENS, D), loss=lambda y, _: y.mean())
    places = [block for block in seen.timeline.blocks if "nonzero" in block.op]
    assert {block.num_bytes for block in places} == {5 * 8}


def test_counts_that_nobody_reads_are_not_assumed():
    """A router's statistics are made, and nothing is said of how tokens are shared out."""

    def unread(x, weights, chosen, experts):
        load = functional.one_hot(chosen, EXPERTS).sum((0, 1))
        return experts[0](x) * weights[:, :1] + load.float().mean()

    seen = trace(Loop(unread), torch.zeros(TOKENS, D), loss=lambda y, _: y.mean())
    assert not [text for text in seen.assumptions if "experts" in text]


@pytest.mark.parametrize("take", [lambda x, m: x[m], torch.masked_select, lambda _, m: torch.bincount(m.int())])
def test_any_other_mask_still_needs_its_values(take):
    """What no router chose is data, in a module of experts too; the remedy says what would be traced."""

    def loop(x, *_):
        return take(x, x > 0)

    with pytest.raises(TraceError, match=r"needs the values of a tensor.*mask.*num_experts"):
        trace(Loop(loop), torch.zeros(TOKENS, D, requires_grad=True), loss=lambda y, _: y.sum())
