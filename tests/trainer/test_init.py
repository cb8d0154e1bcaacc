import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from torchledger.meter import allocations
from torchledger.spec import (
    AttentionSpec,
    MlpSpec,
    MoeSpec,
    NormSpec,
    OptimizerSpec,
    PositionSpec,
    Recipe,
    recipe_mistakes,
)
from torchledger.trainer.init import _draw, initialize, learning_rate_scales, standard_deviations
from torchledger.trainer.model import build
from torchledger.trainer.step import build_step

# A normal variable cut at ±3 of its standard deviation has this standard deviation itself:
# sqrt(1 - 2·3·φ(3) / (2Φ(3) - 1)).
CUT_STD = math.sqrt(1 - 6 * math.exp(-4.5) / math.sqrt(2 * math.pi) / math.erf(3 / math.sqrt(2)))


def drawn(spec, initialization="fan_in", seed=0):
    model = build(spec, attention="math")
    initialize(model, initialization, seed)
    return model


def wide(tiny, **fields):
    """Wide enough for statistics: 65,536 numbers in a projection."""
    return replace(tiny, hidden_size=256, vocab_size=2048, mlp=MlpSpec(512), attention=AttentionSpec(4), **fields)


@pytest.mark.parametrize("initialization", ["fan_in", "gpt2", "xavier", "kaiming", "mup"])
@pytest.mark.parametrize("tied", [False, True])
def test_loss_at_step_0_is_ln_vocabulary(any_spec, initialization, tied):
    """On random tokens the first loss is within 2 % of ln(vocabulary), whatever the architecture."""
    spec = replace(any_spec, vocab_size=4096, tied_embeddings=tied)
    ids = torch.randint(0, 4096, (4, 33), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        loss = drawn(spec, initialization).eval()(ids[:, :-1], ids[:, 1:]).item()
    assert loss == pytest.approx(math.log(4096), rel=0.02)


def test_fan_in_has_one_over_the_root_of_the_inputs(tiny):
    """The down projection reads 512: 1/sqrt(512), less what the cut takes; nothing lies beyond 3 of its own std."""
    model = drawn(wide(tiny))
    down, up = model.layers[1].mlp.down.weight, model.layers[1].mlp.up.weight
    assert down.std().item() == pytest.approx(CUT_STD / math.sqrt(512), rel=0.01)
    assert up.std().item() == pytest.approx(CUT_STD / math.sqrt(256), rel=0.01)
    assert 2.9 / math.sqrt(512) < down.abs().max().item() <= 3 / math.sqrt(512) * (1 + 1e-6)


def test_head_and_embedding_keep_the_first_loss_low(tiny):
    """An untied head has 1/in and its embedding 1; a tied one has 0.25/sqrt(in) for both."""
    untied = standard_deviations(build(wide(tiny), attention="math"), "fan_in")
    tied = standard_deviations(build(wide(tiny, tied_embeddings=True), attention="math"), "fan_in")
    assert (untied["head.weight"], untied["embedding.weight"]) == (1 / 256, 1.0)
    assert tied["embedding.weight"] == 0.25 / 16


def test_positions_are_a_tenth_of_the_embedding(tiny):
    """A learned position is drawn ten times smaller than the token embedding that it is added to."""
    stds = standard_deviations(build(wide(tiny, position=PositionSpec("learned")), attention="math"), "fan_in")
    assert stds["position_embedding.weight"] == 0.1 * stds["embedding.weight"]


def test_gpt2_scales_what_writes_to_the_residual_stream(tiny):
    """0.02 everywhere, and 0.02/sqrt(2·2 layers) for the output and down projections."""
    stds = standard_deviations(build(tiny, attention="math"), "gpt2")
    assert stds["layers.0.attention.output.weight"] == stds["layers.1.mlp.down.weight"] == 0.02 / math.sqrt(2 * 2)
    assert stds["layers.0.attention.query.weight"] == stds["embedding.weight"] == stds["head.weight"] == 0.02
    assert stds["final_norm.weight"] == 0


def test_norms_are_one_and_biases_zero(any_spec):
    """Vectors begin constant: norm weights apply as 1, biases as 0."""
    for name, p in drawn(any_spec).named_parameters():
        if p.ndim == 1:
            offset = any_spec.norm.unit_offset or not name.endswith("norm.weight")
            assert (p == (0 if offset else 1)).all(), name


def test_values_depend_on_seed_and_name_only(tiny):
    """The same seed gives the same bits, in a deeper model and on other threads too; another seed gives others."""
    a, b = drawn(tiny), drawn(replace(tiny, num_layers=3))
    deep = dict(b.named_parameters())
    assert all(torch.equal(p, deep[name]) for name, p in a.named_parameters())
    assert not torch.equal(a.head.weight, drawn(tiny, seed=1).head.weight)


def test_no_other_random_stream_moves(tiny):
    """Initialising leaves torch's global generator where it was."""
    before = torch.get_rng_state()
    drawn(tiny)
    assert torch.equal(torch.get_rng_state(), before)


def test_unit_offset_norms_begin_at_zero(tiny):
    """A weight stored as an offset from one begins at 0."""
    model = drawn(replace(tiny, norm=NormSpec(unit_offset=True)))
    assert (model.final_norm.weight == 0).all()


def test_xavier_and_kaiming_look_at_the_fans(tiny):
    """The up projection [512, 256]: Xavier sqrt(2/(256 + 512)), Kaiming sqrt(2/256); the head stays 1/256."""
    model = build(wide(tiny), attention="math")
    xavier, kaiming = standard_deviations(model, "xavier"), standard_deviations(model, "kaiming")
    assert xavier["layers.0.mlp.up.weight"] == math.sqrt(2 / 768)
    assert kaiming["layers.0.mlp.up.weight"] == math.sqrt(2 / 256)
    assert xavier["head.weight"] == kaiming["head.weight"] == 1 / 256
    up = drawn(wide(tiny), "xavier").layers[0].mlp.up.weight
    assert up.std().item() == pytest.approx(CUT_STD * math.sqrt(2 / 768), rel=0.01)
    assert up.abs().max().item() <= 3 * math.sqrt(2 / 768) * (1 + 1e-6)


@pytest.mark.parametrize(("kind", "expected"), [("adamw", (1, 1 / 4, 1 / 4)), ("sgd", (4, 1, 1 / 4))])
def test_mup_scales_learning_rates_with_the_width(tiny, kind, expected):
    """Four times the base width: (embedding and vectors, matrices inside, head) as in table 3 of the paper."""
    recipe = Recipe(initialization="mup", mup_base_size=64, optimizer=OptimizerSpec(kind=kind))
    scales = learning_rate_scales(build(wide(tiny), attention="math"), recipe)
    found = [scales[name] for name in ("embedding.weight", "layers.0.mlp.up.weight", "head.weight")]
    assert tuple(found) == expected
    assert scales["layers.0.attention_norm.weight"] == expected[0]


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_mup_changes_nothing_at_its_base_size(tiny, kind):
    """At the base width every rate is the recipe's, and the values are those of fan_in."""
    recipe = Recipe(initialization="mup", mup_base_size=256, optimizer=OptimizerSpec(kind=kind))
    model = build(wide(tiny, moe=MoeSpec(4, 2, 64)), attention="math")
    assert set(learning_rate_scales(model, recipe).values()) == {1.0}
    assert standard_deviations(model, "mup", 256) == standard_deviations(model, "fan_in")


def test_without_mup_every_rate_is_the_recipes(tiny):
    """Another initialisation scales no learning rate."""
    assert set(learning_rate_scales(build(tiny, attention="math"), Recipe()).values()) == {1.0}


def mup_change(tiny, width, initialization):
    """How much one step of Adam changes what the layers make of a batch, beside their size."""
    spec = replace(tiny, hidden_size=width, mlp=MlpSpec(2 * width), attention=AttentionSpec(4, head_size=16))
    optimizer = OptimizerSpec(learning_rate=3e-3, weight_decay=0.0, gradient_clip=0.0, schedule="constant")
    recipe = Recipe(
        batch_size=4,
        sequence_length=16,
        num_tokens=6400,
        optimizer=optimizer,
        attention="math",
        initialization=initialization,
        mup_base_size=64,
    )
    step = build_step(spec, recipe)
    ids = torch.randint(0, 257, (4, 17), generator=torch.Generator().manual_seed(3))
    seen = []
    hook = step.model.layers[-1].register_forward_hook(lambda _module, _inputs, output: seen.append(output.detach()))
    for number in range(2):
        step([(ids[:, :-1], ids[:, 1:])], number)
    hook.remove()
    return ((seen[1] - seen[0]).square().mean().sqrt() / seen[0].square().mean().sqrt()).item()


def test_an_update_changes_activations_as_much_at_any_width(tiny):
    """From width 64 to 1024 a step's change of the last layer's output stays within 2 with muP, and grows without."""
    mup = mup_change(tiny, 1024, "mup") / mup_change(tiny, 64, "mup")
    plain = mup_change(tiny, 1024, "fan_in") / mup_change(tiny, 64, "fan_in")
    assert 0.5 < mup < 2
    assert plain > 3


@pytest.mark.parametrize(
    ("spec_fields", "kind"), [({"tied_embeddings": True}, "adamw"), ({}, "muon"), ({}, "adafactor")]
)
def test_mup_is_refused_where_the_paper_has_no_row_for_it(tiny, spec_fields, kind):
    """A tied head cannot have values of its own, and Muon and Adafactor have no row in the table."""
    recipe = Recipe(initialization="mup", optimizer=OptimizerSpec(kind=kind))
    assert [name for name, _ in recipe_mistakes(recipe, replace(tiny, **spec_fields))] == ["initialization"]


@pytest.mark.parametrize("shape", [(1, 3), (1, 17), (7, 9), (5, 2049), (33, 1000), (1024, 1023)])
def test_piece_by_piece_the_values_are_those_of_one_draw(shape):
    """Torch's own truncated normal gives the same bits, whatever the sizes divide by."""
    whole, pieces = torch.empty(shape), torch.empty(shape)
    nn.init.trunc_normal_(whole, 0.0, 0.3, -0.9, 0.9, generator=torch.Generator().manual_seed(2))
    _draw(pieces, 0.3, torch.Generator().manual_seed(2))
    assert torch.equal(whole, pieces)


@pytest.mark.parametrize("vocab_size", [2048, 40])
def test_drawing_holds_new_values_and_two_masks_of_a_piece(tiny, vocab_size):
    """Beside the parameters: 4 + 1 + 1 bytes a value of 65,536, and scalars; an embedding has 8 times as many."""
    model = build(replace(wide(tiny), vocab_size=vocab_size), attention="math")
    held_bytes = allocations(lambda: initialize(model, "fan_in", 0)).peak_bytes
    assert 6 * 65_536 <= held_bytes < 6 * 65_536 + 64
