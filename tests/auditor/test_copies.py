"""The audit of copies: planted ones are named with their bytes and their line, and sound models raise nothing."""

import inspect

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from torchledger.auditor import AuditError, Subject, audit_copies
from torchledger.cli.asked import ask
from torchledger.ledger import AuditRecord, Finding
from torchledger.tracer import trace
from torchledger.trainer.model import build

B, T, C = 4, 32, 64
FP32 = 4


class Net(nn.Module):
    """A linear layer, something in between, and a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(C, C), nn.Linear(C, C)

    def forward(self, x: Tensor) -> Tensor:
        """The loss."""
        return self.last(self._between(self.first(x))).square().mean()

    def _between(self, h: Tensor) -> Tensor:
        return h


class Hidden(Net):
    """The planted fault: nobody needs the order that `contiguous` makes."""

    def _between(self, h: Tensor) -> Tensor:
        h = h.transpose(1, 2).contiguous()
        return functional.gelu(h).transpose(1, 2)


class WithoutHidden(Net):
    def _between(self, h: Tensor) -> Tensor:
        h = h.transpose(1, 2)
        return functional.gelu(h).transpose(1, 2)


class Needed(Net):
    """What reads the result merges dimensions that do not lie as one."""

    def _between(self, h: Tensor) -> Tensor:
        return h.transpose(0, 1).contiguous().view(T * B, C)


class Cloned(Net):
    def _between(self, h: Tensor) -> Tensor:
        return h.clone() + 1


class ClonedForWriting(Net):
    def _between(self, h: Tensor) -> Tensor:
        copy = h.detach().clone()
        copy.mul_(2)
        return h + copy


class Unread(Net):
    def _between(self, h: Tensor) -> Tensor:
        h.detach().clone()
        return h


class RoundTrip(Net):
    def _between(self, h: Tensor) -> Tensor:
        return h.to(torch.bfloat16).to(torch.float32)


class CastAgain(Net):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(C, C))

    def _between(self, h: Tensor) -> Tensor:
        half = h.to(torch.bfloat16)
        for _ in range(3):
            half = half @ self.weight.to(torch.bfloat16)
        return half.float()


class Expanded(Net):
    def _between(self, h: Tensor) -> Tensor:
        return h * h.mean(-1, keepdim=True).expand(B, T, C).contiguous()


class Repeated(Net):
    def _between(self, h: Tensor) -> Tensor:
        return h * h.mean(-1, keepdim=True).repeat(1, 1, C)


class Rejoined(Net):
    def _between(self, h: Tensor) -> Tensor:
        return torch.cat(h.chunk(2, dim=-1), dim=-1)


class Growing(Net):
    def _between(self, h: Tensor) -> Tensor:
        out = h[:, :1]
        for position in range(1, T):
            out = torch.cat((out, h[:, position : position + 1] * 2), dim=1)
        return out


class DataDependent(Net):
    def _between(self, h: Tensor) -> Tensor:
        return h * 2 if h.sum().item() > 0 else h.transpose(0, 1).contiguous().transpose(0, 1) * 3


def audited(model: nn.Module, **options) -> AuditRecord:
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters())
    return audit_copies(Subject("net", model, torch.randn(B, T, C), optimizer=optimizer, **options))


def warning(model: nn.Module) -> Finding:
    """The one warning of a model's audit."""
    (found,) = [each for each in audited(model).findings if each.severity == "warning"]
    return found


def line_of(cls: type, text: str) -> str:
    lines, first = inspect.getsourcelines(cls)
    return f"auditor/test_copies.py:{first + next(n for n, line in enumerate(lines) if text in line)}"


def test_a_hidden_contiguous_is_named_with_bytes_and_line():
    """B·T·C floats are copied: 4·32·64·4 bytes made, twice that moved; place and expression are the user's."""
    found = warning(Hidden())
    assert found.place == line_of(Hidden, ".contiguous()")
    assert found.evidence["copied_bytes"] == B * T * C * FP32
    assert found.evidence["moved_bytes"] == 2 * B * T * C * FP32
    assert "`h.transpose(1, 2).contiguous()`" in found.message
    assert "leave `.contiguous()` out" in found.remedy


def test_what_is_called_avoidable_can_be_left_out():
    """Without the call the traced step moves that much less and what followed from it, and computes the same bits."""
    batch = torch.randn(B, T, C)
    torch.manual_seed(0)
    one = Hidden()
    other = WithoutHidden()
    other.load_state_dict(one.state_dict())
    records = [audited(model) for model in (one, other)]
    moved = [trace(model, batch).ledger.total.bytes_moved for model in (one, other)]
    saved = moved[0] - moved[1]
    # Three times as much is saved: the layer behind no longer copies an input that lies otherwise, and adds its bias
    # in the product instead of after it.
    avoidable = records[0].facts["avoidable_bytes"]
    assert avoidable == 2 * B * T * C * FP32
    assert records[0].facts["moved_bytes"] - records[1].facts["moved_bytes"] == 2 * avoidable
    assert saved == 3 * avoidable
    assert records[1].facts["avoidable_bytes"] == 0
    losses = [model(batch) for model in (one, other)]
    for loss in losses:
        loss.backward()
    assert torch.equal(*losses)
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("model", [Net(), Needed(), ClonedForWriting()])
def test_no_alarm_where_a_copy_is_needed(model):
    """A copy that is viewed as no view of the original can be, or is written, is a row of the table and no finding."""
    record = audited(model)
    assert not record.findings
    assert record.is_clean
    assert record.facts["avoidable_bytes"] == 0


def test_who_needs_a_copy_is_told():
    """The row of a needed copy names the operation that reads it, and as what shape."""
    (row,) = [row for row in audited(Needed()).tables["copies"] if row["function"] == "contiguous"]
    assert row["judgement"] == "needed"
    assert f"({T * B}, {C})" in row["why"]


@pytest.mark.parametrize(
    ("model", "text", "said", "moved"),
    [
        (Cloned, "h.clone()", "could have been read", 2 * B * T * C * FP32),
        (Unread, ".clone()", "nothing reads", 2 * B * T * C * FP32),
        # Back from 2 to 4 bytes an element: 2 read, 4 written.
        (RoundTrip, "h.to(", "straight back to fp32", B * T * C * (2 + FP32)),
        # Cast three times, two too many: 4 bytes read and 2 written of C·C weights each.
        (CastAgain, "self.weight.to", "weight is cast", 2 * C * C * (FP32 + 2)),
        # An expanded element is read once: B·T read, B·T·C written.
        (Expanded, ".contiguous()", "could read the original", B * T * (1 + C) * FP32),
        (Repeated, ".repeat(", "could read the original", B * T * (1 + C) * FP32),
        (Rejoined, "torch.cat", "lie joined", 2 * B * T * C * FP32),
        # The join of n pieces reads and writes n rows: 3 + 4 + ... + T, since the first joins two that were not joined.
        (Growing, "torch.cat", "grows by joining", 2 * (T * (T + 1) // 2 - 3) * B * C * FP32),
    ],
)
def test_planted_copies(model, text: str, said: str, moved: int):
    """Each is one warning at its line, with the bytes that leaving it out saves."""
    found = warning(model())
    assert found.place == line_of(model, text)
    assert said in found.message
    assert found.evidence["moved_bytes"] == moved


def test_facts_add_up():
    """Moved bytes are the sum of the table, by kind and by row, and a share of the traced step's."""
    record = audited(Hidden())
    rows = record.tables["copies"]
    assert record.facts["moved_bytes"] == sum(row["moved_bytes"] for row in rows)
    assert record.facts["moved_bytes"] == sum(record.facts["moved_bytes_by_kind"].values())
    assert record.facts["num_copies"] == sum(row["times"] for row in rows)
    assert (
        record.facts["step_bytes"]
        == trace(Hidden(), torch.randn(B, T, C), optimizer=torch.optim.SGD).ledger.total.bytes_moved
    )
    assert {row["op"] for row in record.tables["views"]} >= {"transpose", "t", "view"}
    assert record.facts["num_views"] == sum(row["times"] for row in record.tables["views"])


def test_a_step_that_needs_values_runs_on_the_subject_itself():
    """Where the trace is refused the step runs for real; weights, gradients and random streams are put back."""
    model = DataDependent()
    batch, weights = -torch.randn(B, T, C).abs(), [p.clone() for p in model.parameters()]
    state = torch.get_rng_state()
    record = audit_copies(Subject("net", model, batch, optimizer=torch.optim.SGD(model.parameters(), lr=1.0)))
    assert "real tensors" in record.assumptions[0]
    assert all(torch.equal(one, p) and p.grad is None for one, p in zip(weights, model.parameters(), strict=True))
    assert torch.equal(state, torch.get_rng_state())


def test_real_and_fake_steps_are_seen_alike():
    """A step in FP16 runs on real tensors, and finds what the trace of the same in BF16 finds."""
    low = {name: audited(Hidden(), precision=name) for name in ("bf16", "fp16")}
    assert [each.message for each in low["bf16"].findings] == [each.message for each in low["fp16"].findings]
    assert low["bf16"].facts["moved_bytes"] == low["fp16"].facts["moved_bytes"]


def test_autocast_casts_are_no_warning():
    """A tensor that autocast casts for two layers is a note; the weights' casts are facts."""

    class Two(Net):
        def _between(self, h: Tensor) -> Tensor:
            h = h.float().softmax(-1)
            return self.first(h) + self.last(h)

    record = audited(Two(), precision="bf16")
    assert record.is_clean
    assert any("autocast" in each.remedy for each in record.findings)
    assert record.facts["moved_bytes_by_kind"]["cast"] > 0


def test_a_model_that_cannot_be_looked_at():
    """The message says why, as an error of audits."""

    class NoLoss(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.first(x)

    with pytest.raises(AuditError, match="no loss"):
        audited(NoLoss())


FAMILIES = ("gpt2", "llama-3.2-1b", "falcon-7b", "phi-3-mini", "gpt-j-6b", "olmo-2-1b", "bloom-560m", "opt-350m")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", FAMILIES)
def test_presets_raise_no_warning(name: str, precision: str):
    """One of each family, in its own widths, two layers deep, on placeholders: nothing is copied that need not be."""
    model = ask(name, {}, ["model.num_layers=2"]).model
    with torch.device("meta"):  # shapes alone: nothing is drawn, and nothing takes memory
        network = build(model, attention="fused").train()
        tokens = torch.zeros(2, 128, dtype=torch.int64)
    optimizer = torch.optim.AdamW(network.parameters())
    subject = Subject(name, network, (tokens, tokens), optimizer=optimizer, precision=precision)
    record = audit_copies(subject)
    assert record.is_clean, record.findings
    assert record.facts["num_copies"] > 0
