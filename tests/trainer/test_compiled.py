from dataclasses import replace
from functools import partial

import pytest
import torch

from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, Recipe
from torchledger.trainer import compiled
from torchledger.trainer.checkpoint import model_state
from torchledger.trainer.compiled import choose_compile, compile_model
from torchledger.trainer.errors import ResumeRefused, SetupError
from torchledger.trainer.loop import new_run, train
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.resume import resume_changes
from torchledger.trainer.setup import resolve
from torchledger.trainer.step import build_step, example_batch

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SPEC = ModelSpec("two layers", 257, 32, 2, 32, AttentionSpec(4), MlpSpec(48))
RECIPE = Recipe(batch_size=4, sequence_length=16, num_tokens=6400)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def counted(monkeypatch):
    """torch.compile that calls what it is given and counts the calls; tests of when it is used need no compiler."""
    calls = []

    def fake(plain, **_):
        def run(*inputs):
            calls.append(plain)
            return plain(*inputs)

        return run

    monkeypatch.setattr(torch, "compile", fake)
    return calls


def test_layers_are_compiled_where_gradients_are_wanted(tiny, batch, counted):
    """Two layers are two compiled calls in training, and none in evaluation; names are those of the plain model."""
    step, plain = build_step(tiny, RECIPE), build_step(tiny, RECIPE)
    compile_model(step.model, "layers")
    with torch.no_grad():
        step.model(*batch)
    assert counted == []
    assert step([batch], 0).loss == plain([batch], 0).loss
    assert len(counted) == 2
    assert model_state(step.model).keys() == model_state(plain.model).keys()


def test_a_model_is_compiled_as_one(tiny, batch, counted):
    """One compiled call in training and none in evaluation; names are those of the plain model."""
    step, plain = build_step(tiny, RECIPE), build_step(tiny, RECIPE)
    compile_model(step.model, "model")
    with torch.no_grad():
        step.model(*batch)
    assert counted == []
    assert step([batch], 0).loss == plain([batch], 0).loss
    assert len(counted) == 1
    assert model_state(step.model).keys() == model_state(plain.model).keys()


def test_layers_with_experts_are_left_as_they_are(tiny, batch, counted):
    """Of a dense layer and one with experts the dense one is compiled; of experts alone nothing can be."""
    mixed = replace(tiny, moe=MoeSpec(4, 2, 16, num_leading_dense_layers=1))
    step = build_step(mixed, RECIPE)
    compile_model(step.model, "layers")
    step([batch], 0)
    assert len(counted) == 1
    assert "the 1 layers without experts" in choose_compile("layers", mixed, RECIPE, CPU, is_alone=True).reasons[0]
    with pytest.raises(SetupError, match="every layer has experts"):
        choose_compile("layers", replace(tiny, moe=MoeSpec(4, 2, 16)), RECIPE, CPU, is_alone=True)


def test_a_short_run_is_not_held_up(tiny, monkeypatch):
    """`auto` asks nothing of a compiler where all layers of the run take less than a minute; `no` says nothing."""

    def fail(*_, **__):
        raise AssertionError

    monkeypatch.setattr(torch, "compile", fail)
    choice = choose_compile("auto", tiny, RECIPE, CPU, is_alone=True)
    assert choice.what == "no"
    assert choice.reasons[0].startswith("compile no: the layers take ")
    assert choice.reasons[0].endswith(" s in the whole run, too few to repay compiling")
    assert choose_compile("no", tiny, RECIPE, CPU, is_alone=True) == compiled.CompileChoice("no")


def test_several_ranks_are_refused_by_name(tiny):
    """`layers` on several ranks is refused with what to do; `auto` leaves it off and says so."""
    with pytest.raises(SetupError, match=r"one process alone; set compile to no"):
        choose_compile("layers", tiny, RECIPE, CPU, is_alone=False)
    assert choose_compile("auto", tiny, RECIPE, CPU, is_alone=False).reasons == (
        "compile no: it is built for one process alone",
    )


def test_a_machine_without_a_compiler_is_told(tiny, monkeypatch):
    """Where torch cannot compile, the first line of its reason is told before anything is trained."""

    def broken(*_, **__):
        raise RuntimeError("\nno working C++ compiler\nset CXX")

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(SetupError, match="compiled here: no working C\\+\\+ compiler; set compile to no"):
        choose_compile("layers", tiny, RECIPE, CPU, is_alone=True)


@pytest.mark.parametrize(
    ("device", "compiled_s", "model_s", "what"),
    [
        (CUDA, 1.0, 1.5, "layers"),  # 2 layers · 100 steps · (2 - 1) s = 200 s saved; one graph is slower than layers
        (CUDA, 1.7, 1.0, "no"),  # 60 s saved for 80 s of compiling
        (CPU, 1.0, 0.5, "model"),  # 100 steps · (2 - 0.5) s = 150 s more, for 30 + 80 s of compiling
        (CPU, 1.0, 0.95, "layers"),  # 100 steps · (2 - 0.95) s = 105 s more, for 110 s of compiling
        (CPU, 1.97, 0.5, "no"),  # less than 2 % faster
    ],
)
def test_the_gain_over_the_run_decides(monkeypatch, device, compiled_s, model_s, what):
    """A layer takes 2 s as it is and 80 s to compile, a model of one layer 2 s with it compiled and 30 s to compile."""
    monkeypatch.setattr(compiled, "_fault_of_compiler", lambda _: "")
    monkeypatch.setattr(compiled.Trial, "of", lambda *_, **__: None)
    monkeypatch.setattr(compiled, "_plain_s", lambda _: 2.0)
    found = {"layers": (80.0, 2.0, compiled_s), "model": (30.0, 2.0, model_s)}
    monkeypatch.setattr(compiled, "_compared", lambda _trial, _first, second: found[second])
    choice = choose_compile("auto", SPEC, RECIPE, device, is_alone=True)
    assert choice.what == what
    assert f"a layer takes 2 s as it is and {1 - compiled_s / 2:.0%} less compiled" in choice.reasons[0]
    graph = f"one graph of a model of one layer takes {1 - model_s / 2:.0%} less than its layer compiled"
    assert (graph in choice.reasons[-1]) is (what != "no")


def test_a_graph_that_takes_minutes_to_compile_is_not_made(tiny, monkeypatch):
    """Two layers at 100 s each are more than `LONGEST_COMPILE_S`, whatever a long run would gain by them."""
    monkeypatch.setattr(compiled, "_fault_of_compiler", lambda _: "")
    monkeypatch.setattr(compiled.Trial, "of", lambda *_, **__: None)
    monkeypatch.setattr(compiled, "_plain_s", lambda _: 2.0)
    monkeypatch.setattr(compiled, "_compared", lambda *_: (100.0, 2.0, 1.0))
    choice = choose_compile("auto", tiny, replace(RECIPE, num_tokens=64 * 10**6), CPU, is_alone=True)
    assert choice.what == "layers"
    assert choice.reasons[-1].endswith("and all layers about 200 s to compile")


@pytest.mark.parametrize(("broken", "what"), [("layers", "no"), ("model", "layers")])
def test_a_compiler_that_fails_in_a_probe_fails_no_run(tiny, monkeypatch, broken, what):
    """`auto` leaves as it is what the compiler cannot do, and says the compiler's first words."""

    def compared(_trial, _first, second):
        if second == broken:
            raise RuntimeError("\ninvalid ELF header\nand more")
        return 1.0, 2.0, 1.0

    monkeypatch.setattr(compiled, "_fault_of_compiler", lambda _: "")
    monkeypatch.setattr(compiled.Trial, "of", lambda *_, **__: None)
    monkeypatch.setattr(compiled, "_plain_s", lambda _: 2.0)
    monkeypatch.setattr(compiled, "_compared", compared)
    choice = choose_compile("auto", tiny, RECIPE, CPU, is_alone=True)
    assert choice.what == what
    assert choice.reasons[-1].endswith(": invalid ELF header")


def test_the_probe_runs_for_every_model(any_spec, counted, monkeypatch):
    """A model of one dense layer can be timed whatever the model is, unless all its layers have experts."""
    if all(any_spec.layer(i).is_moe for i in range(any_spec.num_layers)):
        return
    monkeypatch.setattr(compiled, "PROBE_S", 0.0)
    trial = compiled.Trial.of(any_spec, RECIPE, CPU)
    assert compiled._plain_s(trial) > 0
    assert counted == []
    assert all(seconds > 0 for seconds in compiled._compared(trial, "no", "layers"))
    assert len(counted) == 1 + 5  # once to compile, and once of each pair
    assert all(seconds > 0 for seconds in compiled._compared(trial, "no", "model"))
    assert len(counted) == 2 * (1 + 5)  # the layer is as it was again


@pytest.fixture
def without_breaks(monkeypatch):
    """torch.compile that traces, refuses a break in the graph, and runs what it traced without making kernels."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, fullgraph=True, backend="eager"))
    torch._dynamo.reset()


def losses_of(spec, recipe):
    """Of a step of the model as one graph, and of one as it is."""
    one, plain = build_step(spec, recipe), build_step(spec, recipe)
    compile_model(one.model, "model")
    losses = []
    for step in (one, plain):
        torch.manual_seed(0)  # of dropout
        losses.append(step(example_batch(recipe), 0).loss.item())
    return losses


PLAIN_MODELS = ("learned", "dropout", "alibi-window", "local-theta", "soft-caps", "latent", "embedding-size")


@pytest.mark.filterwarnings("ignore")  # torch warns of itself while it compiles
@pytest.mark.parametrize(
    "name", ["learned", "dropout", "alibi-window", "local-theta", "soft-caps", "latent", "embedding-size"]
)
def test_a_dense_model_is_one_graph(specs, name, without_breaks):
    """Embedding to loss is traced without a break and gives the plain model's loss, the unusual ones among them."""
    one, plain = losses_of(specs[name], RECIPE)
    assert one == plain


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore")  # torch warns of itself while it compiles
def test_every_dense_model_is_one_graph(any_spec, without_breaks):
    """The same of all of them; one with experts is refused."""
    refused = compiled._why_not_whole(any_spec, RECIPE)
    if any_spec.moe is None:
        one, plain = losses_of(any_spec, RECIPE)
        assert (refused, one) == ("", plain)
    else:
        assert refused == "it has layers with experts, whose shapes change with every batch"


@pytest.mark.filterwarnings("ignore")  # torch warns of itself while it compiles
@pytest.mark.parametrize(
    "fields",
    [
        {"precision": "bf16", "attention": "math"},
        {"precision": "fp8"},
        {"lora_rank": 4},
        {"trainable": ("head",)},
        {"document_mask": True},
    ],
    ids=lambda fields: next(iter(fields)) if len(fields) == 1 else "bf16",
)
def test_every_recipe_is_one_graph(tiny, fields, without_breaks):
    """16 bits, FP8's own products, adapters, frozen parts and documents apart give the plain step's loss."""
    one, plain = losses_of(tiny, replace(RECIPE, **fields))
    assert one == plain


@pytest.mark.parametrize(
    ("spec", "recipe", "why"),
    [
        ({"num_prediction_layers": 1}, {}, "prediction layers have losses whose shares change"),
        ({}, {"recompute": "full"}, "a compiler would decide anew"),
        ({}, {"loss_chunk": 16}, "piece by piece"),
    ],
)
def test_what_is_no_graph_is_refused_by_name(tiny, monkeypatch, spec, recipe, why):
    """`model` is refused with what stands against it, and `auto` compiles the layers instead and says so."""
    spec, recipe = replace(tiny, **spec), replace(RECIPE, **recipe)
    with pytest.raises(SetupError, match=f"the model as one graph cannot be compiled here: .*{why}.*; set compile to "):
        choose_compile("model", spec, recipe, CPU, is_alone=True)
    monkeypatch.setattr(compiled, "_fault_of_compiler", lambda _: "")
    monkeypatch.setattr(compiled.Trial, "of", lambda *_, **__: None)
    monkeypatch.setattr(compiled, "_plain_s", lambda _: 2.0)
    monkeypatch.setattr(compiled, "_compared", lambda *_: (1.0, 2.0, 1.0))
    choice = choose_compile("auto", spec, recipe, CPU, is_alone=True)
    assert choice.what == "layers"
    assert why in choice.reasons[-1]


@pytest.mark.filterwarnings("ignore")  # torch warns of itself while it compiles
@pytest.mark.parametrize("what", ["layers", "model"])
def test_a_compiled_run_is_resumed_bit_for_bit(config, what):
    """Compiled for real: near the plain run's losses, repeated to the bit after a resume, refused without compiling."""
    config = replace(config, compile=what)
    setup = resolve(config)
    assert setup.identity.numerics["compiled"] == what
    folder = new_run(setup)
    whole = [event for event in train(setup, folder) if type(event).__name__ == "Step"]
    plain = resolve(replace(config, compile="no"))
    others = [event for event in train(plain, new_run(plain)) if type(event).__name__ == "Step"]
    assert [event.loss for event in whole] == pytest.approx([event.loss for event in others], rel=1e-5)
    checkpoint = min(folder.checkpoints.iterdir())
    assert not [name for name in Manifest.read(checkpoint).pieces("weights") if "_orig_mod" in name]
    again = [event for event in train(setup, new_run(setup), checkpoint=checkpoint) if type(event).__name__ == "Step"]
    assert [event.loss for event in again] == [event.loss for event in whole][again[0].step :]
    with pytest.raises(
        ResumeRefused, match=rf"numerics.compiled: '?{what}'? in the checkpoint, nothing now \(compiled"
    ):
        resume_changes(checkpoint, plain)
