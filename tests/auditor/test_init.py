import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from torchledger.auditor import AuditError, Subject, audit_init

WIDTH, DEPTH = 256, 5


def _mlp(draw=None, *, depth=DEPTH, width=WIDTH, activation=nn.ReLU, seed=0):
    """A plain net with a head of ten outputs; biases are 0."""
    torch.manual_seed(seed)
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), activation()]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    for layer in model:
        if isinstance(layer, nn.Linear):
            (draw or nn.init.kaiming_normal_)(layer.weight)
            nn.init.zeros_(layer.bias)
    return model


def _subject(model, x=None, **known):
    x = torch.randn(48, WIDTH, generator=torch.Generator().manual_seed(0)) if x is None else x
    return Subject("model", model, (x,), loss=lambda out, _: (out - 0.1).square().mean(), **known)


def _serious(record):
    return [each for each in record.findings if each.severity != "note"]


def _places(record):
    return {(each.severity, each.place) for each in _serious(record)}


def _about(record, words):
    (found,) = [each for each in record.findings if words in each.message]
    return found


@pytest.mark.parametrize(("draw", "activation"), [
    (nn.init.kaiming_normal_, nn.ReLU),
    (nn.init.kaiming_uniform_, nn.ReLU),
    (nn.init.xavier_normal_, nn.Tanh),
    (nn.init.orthogonal_, nn.Tanh),
    (lambda weight: nn.init.normal_(weight, std=1 / math.sqrt(weight.shape[1])), nn.Identity),
])  # fmt: skip
def test_a_sound_net_raises_nothing(draw, activation):
    """Each scheme before the activation it was made for keeps signals and gradients, eight layers deep."""
    assert audit_init(_subject(_mlp(draw, depth=8, activation=activation))).findings == ()


def test_a_layer_of_zeros_that_never_moves_is_an_error():
    """Behind it all is 0, and a ReLU at 0 sends no gradient back: it is named, with its count, and what it stops."""
    model = _mlp()
    nn.init.zeros_(model[4].weight)
    record = audit_init(_subject(model))
    assert _places(record) == {("error", "4"), ("error", "4.weight")}
    assert _about(record, "never move").evidence["num_weights"] == WIDTH * WIDTH


def test_a_layer_of_zeros_that_moves_is_a_warning_and_in_a_branch_a_note():
    """A head of zeros has a gradient and moves; as the end of a branch it is a way to begin (LoRA's B)."""
    model = _mlp(lambda w: nn.init.normal_(w, std=1 / 16), activation=nn.Identity)
    nn.init.zeros_(model[-1].weight)
    assert ("warning", f"{2 * DEPTH}.weight") in _places(audit_init(_subject(model)))

    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.up, self.down = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
            nn.init.zeros_(self.down.weight)

        def forward(self, x):
            h = self.first(x)
            return h + self.down(torch.tanh(self.up(h)))

    record = audit_init(_subject(Branch()))
    assert record.is_clean
    assert _about(record, "as if it were not there").place == "down.weight"


def test_neurons_that_stay_one_are_an_error_and_those_that_part_a_warning():
    """Copied rows are counted; where what reads them is copied too, their gradients are the same for ever."""
    model = _mlp()
    with torch.no_grad():
        model[4].weight[7] = model[4].weight[1] = model[4].weight[0]
    found = _about(audit_init(_subject(model)), "begin as one neuron")
    assert (found.severity, found.place, found.evidence["num_copies"]) == ("warning", "4.weight", 2)
    with torch.no_grad():
        model[6].weight[:, 7] = model[6].weight[:, 1] = model[6].weight[:, 0]
    found = _about(audit_init(_subject(model)), "one neuron for ever")
    assert (found.severity, found.evidence["groups"]) == ("error", ((0, 1, 7),))


@pytest.mark.parametrize("activation", [nn.Identity, nn.ReLU])
def test_unscaled_weights_are_named_with_their_growth(activation):
    """torch.randn makes a signal sqrt(256) = 16 times as large a layer, and half its square through a ReLU."""
    record = audit_init(_subject(_mlp(nn.init.normal_, activation=activation)))
    found = _about(record, "unscaled")
    assert (found.place, found.evidence["fan_in"], found.evidence["num_layers"]) == ("*.weight", WIDTH, DEPTH + 1)
    assert found.evidence["gain"] == pytest.approx(math.sqrt(WIDTH), rel=0.01)
    assert found.evidence["measured_gain"] == pytest.approx(math.sqrt(WIDTH), rel=0.1)
    expected = math.sqrt(WIDTH / (2 if activation is nn.ReLU else 1))
    for what in ("the signal explodes", "the gradient explodes"):
        assert _about(record, what).evidence["rate"] == pytest.approx(expected, rel=0.1)
    assert "--try fan_in" in found.remedy


def test_vanishing_weights_are_named_with_their_rate():
    """A spread of 0.01 leaves 0.01·sqrt(256/2) = 0.113 of a signal by each layer with a ReLU."""
    record = audit_init(_subject(_mlp(lambda w: nn.init.normal_(w, std=0.01))))
    for what in ("the signal vanishes", "the gradient vanishes"):
        assert _about(record, what).evidence["rate"] == pytest.approx(0.01 * math.sqrt(WIDTH / 2), rel=0.1)


def test_bare_parameters_in_a_loop_are_seen_as_well():
    """A loop of x @ W without any layer's class: growth, scheme and fan-in are found by what is run."""

    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(torch.randn(WIDTH, WIDTH)) for _ in range(4)])

        def forward(self, x):
            for weight in self.weights:
                x = x @ weight
            return x

    torch.manual_seed(0)
    record = audit_init(_subject(Bare()))
    assert _about(record, "explodes").evidence["rate"] == pytest.approx(16, rel=0.05)
    assert _about(record, "unscaled").place == "weights.*"


def test_weights_off_zero_and_of_one_value_are_told():
    """torch.rand has mean 0.5 and std 1/sqrt(12); a constant layer gives the sum of its input for each neuron."""
    found = _about(audit_init(_subject(_mlp(lambda w: nn.init.uniform_(w, 0, 1)))), "the mean of its weights")
    assert (found.evidence["mean"], found.evidence["std"]) == pytest.approx((0.5, 1 / math.sqrt(12)), rel=0.02)
    model = _mlp()
    nn.init.constant_(model[2].weight, 0.01)
    assert _about(audit_init(_subject(model)), "one value throughout").evidence["num_constant_rows"] == WIDTH


def test_gates_that_are_shut_are_told():
    """Biases of -30 close a layer's ReLUs; weights of spread 1 hold a tanh at its ends."""
    model = _mlp()
    nn.init.constant_(model[4].bias, -30)
    assert _about(audit_init(_subject(model)), "of its ReLUs are closed").evidence["share"] == 1
    found = _about(audit_init(_subject(_mlp(nn.init.normal_, activation=nn.Tanh))), "of its tanh")
    assert found.evidence["num_gates"] == DEPTH


def test_layers_that_are_copies_of_one_are_told():
    """nn.TransformerEncoder copies its layer with its values."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True), 3)
    record = audit_init(_subject(encoder, torch.randn(2, 8, 32)))
    copied = {each.place: each.evidence["num_copies"] for each in record.findings if "bit for bit" in each.message}
    assert copied["layers.0.linear1.weight"] == 2


def test_one_layer_unlike_its_siblings_is_found():
    """A layer at a tenth of the others' spread is told; a rule of depth, 1/sqrt(depth), is none."""
    model = _mlp(activation=nn.Tanh, draw=nn.init.xavier_normal_, depth=6)
    with torch.no_grad():
        model[6].weight /= 10
    assert _about(audit_init(_subject(model)), "siblings").place == "6.weight"
    for depth, layer in enumerate(model[::2][:6], 1):
        nn.init.normal_(layer.weight, std=1 / math.sqrt(WIDTH * depth))
    assert not [f for f in audit_init(_subject(model)).findings if "siblings" in f.message]


def test_a_norm_of_nearly_nothing_is_told():
    """Mean square 1e-8 under an epsilon of 1e-5: what comes out has a size of sqrt(1e-8/1e-5) = 0.032, not 1."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH))
    nn.init.normal_(model[0].weight, std=1e-4 / 16)
    nn.init.zeros_(model[0].bias)
    found = _about(audit_init(_subject(model)), "what it normalizes")
    assert (found.severity, found.place) == ("warning", "1")
    assert found.evidence["mean_square"] == pytest.approx(1e-8, rel=0.1)


def test_what_is_not_finite_is_named_where_it_begins():
    """1e20·16 is what the first layer makes of 1; (1e20·16)² = 2.6e42 leaves FP32 in the second."""
    model = _mlp(lambda w: nn.init.normal_(w, std=1e20), activation=nn.Identity)
    assert _about(audit_init(_subject(model)), "infinite or NaN; it is the first").place == "2"
    model = _mlp()
    with torch.no_grad():
        model[0].weight[0, 0] = math.nan
    assert ("error", "0.weight") in _places(audit_init(_subject(model)))


class _Head(nn.Module):
    def __init__(self, std, vocab):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(64, vocab, bias=False)
        nn.init.normal_(self.head.weight, std=std)

    def forward(self, x, targets):
        return nn.functional.cross_entropy(self.head(x), targets)


def test_the_first_loss_is_held_against_the_logarithm_of_the_vocabulary():
    """Logits of std s add s²/2 nats: of 1/64·8 nearly none, of 2/8·8 = 2 two."""
    x, targets = torch.randn(256, 64), torch.randint(1000, (256,))
    for std, expected in ((1 / 64, "clean"), (2 / 8, "far")):
        record = audit_init(Subject("head", _Head(std, 1000), (x, targets), vocab_size=1000))
        assert record.facts["logit_std"] == pytest.approx(8 * std, rel=0.05)
        assert record.facts["loss"] == pytest.approx(math.log(1000) + (8 * std) ** 2 / 2, abs=0.3)
        assert (record.findings == ()) == (expected == "clean")
    assert "nats above" in record.findings[0].message


def test_a_promised_scheme_is_held_against_what_is_there():
    """Where a recipe says fan_in and the weights are of 0.9 of that, each is told with its errors."""
    model = _mlp(lambda w: nn.init.normal_(w, std=0.9 / 16), activation=nn.Identity, depth=2)
    stds = {name: 1 / 16 if name.endswith("weight") else 0.0 for name, _ in model.named_parameters()}
    subject = _subject(model, initialization="fan_in", initial_stds=stds)
    found = [each for each in audit_init(subject).findings if "fan_in says" in each.message]
    assert found
    assert found[0].evidence["expected_std"] == pytest.approx(1 / 16)
    for name, parameter in model.named_parameters():
        if name.endswith("weight"):
            nn.init.normal_(parameter, std=1 / 16)
    assert audit_init(subject).findings == ()


def test_an_attempt_is_shown_beside_and_taken_back():
    """Unscaled weights explode; drawn by kaiming for a ReLU they do not, and the record has both."""
    model = _mlp(nn.init.normal_)
    kept = copy.deepcopy(model.state_dict())
    record = audit_init(_subject(model), attempt="kaiming")
    assert _serious(record)
    assert record.tables["findings_after"] == ()
    assert record.facts["growth"]["Linear"]["signal"] > 1e4
    assert record.facts["tried"]["growth"]["Linear"]["signal_a_layer"] == pytest.approx(1, abs=0.15)
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())

    def halve(module):
        for parameter in module.parameters():
            parameter.div_(2)

    tried = audit_init(_subject(model), attempt=halve, attempt_name="half").facts["tried"]
    assert tried["scheme"] == "half"
    with pytest.raises(AuditError, match="no scheme"):
        audit_init(_subject(model), attempt="lecun")
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())


def test_nothing_is_left_on_the_model():
    """Weights, gradients, hooks of modules and of torch, running statistics and random streams are what they were."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(), nn.Linear(WIDTH, 4))
    model[0].weight.grad = torch.ones_like(model[0].weight)
    kept, stream = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    every = (torch.nn.modules.module._global_forward_hooks, torch.nn.modules.module._global_forward_pre_hooks)
    audit_init(_subject(model), attempt="xavier")
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())
    assert bool((model[0].weight.grad == 1).all())
    assert model[3].weight.grad is None
    assert torch.equal(stream, torch.get_rng_state())
    assert not any(every)
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in model.modules())


def test_what_an_optimizer_has_changed_is_told_and_not_judged():
    """After a step spreads are nobody's scheme; what is broken is still found."""
    model = _mlp(nn.init.normal_, activation=nn.Identity)
    subject = _subject(model, optimizer=torch.optim.AdamW(model.parameters()))
    assert _about(audit_init(subject), "unscaled")
    subject.forward().backward()
    subject.optimizer.step()
    record = audit_init(subject)
    assert not [each for each in record.findings if "unscaled" in each.message]
    assert any("an optimizer has been at the weights" in each for each in record.assumptions)


def test_precision_and_overhead_are_told():
    """Under autocast signals are as it makes them; seconds and bytes of looking are in the record."""
    record = audit_init(replace(_subject(_mlp()), precision="bf16"))
    assert record.findings == ()
    assert any("bf16" in each for each in record.assumptions)
    assert set(record.overhead) == {"plain_step_s", "audited_step_s", "weights_s", "extra_bytes"}
    assert record.overhead["extra_bytes"] == 4 * sum(p.numel() for p in _mlp().parameters())
