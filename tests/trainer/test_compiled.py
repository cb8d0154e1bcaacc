from dataclasses import replace

import pytest
import torch

from torchledger.spec import MoeSpec, Recipe
from torchledger.trainer import compiled
from torchledger.trainer.checkpoint import model_state
from torchledger.trainer.compiled import choose_compile, compile_layers
from torchledger.trainer.errors import ResumeRefused, SetupError
from torchledger.trainer.loop import new_run, train
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.resume import resume_changes
from torchledger.trainer.setup import resolve
from torchledger.trainer.step import build_step

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
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
    compile_layers(step.model)
    with torch.no_grad():
        step.model(*batch)
    assert counted == []
    assert step([batch], 0).loss == plain([batch], 0).loss
    assert len(counted) == 2
    assert model_state(step.model).keys() == model_state(plain.model).keys()


def test_layers_with_experts_are_left_as_they_are(tiny, batch, counted):
    """Of a dense layer and one with experts the dense one is compiled; of experts alone nothing can be."""
    mixed = replace(tiny, moe=MoeSpec(4, 2, 16, num_leading_dense_layers=1))
    step = build_step(mixed, RECIPE)
    compile_layers(step.model)
    step([batch], 0)
    assert len(counted) == 1
    assert "the 1 layers without experts" in choose_compile("yes", mixed, RECIPE, CPU, is_alone=True).reasons[0]
    with pytest.raises(SetupError, match="every layer has experts"):
        choose_compile("yes", replace(tiny, moe=MoeSpec(4, 2, 16)), RECIPE, CPU, is_alone=True)


def test_a_short_run_is_not_held_up(tiny, monkeypatch):
    """`auto` asks nothing of a compiler where all layers of the run take less than a minute; `no` says nothing."""

    def fail(*_, **__):
        raise AssertionError

    monkeypatch.setattr(torch, "compile", fail)
    choice = choose_compile("auto", tiny, RECIPE, CPU, is_alone=True)
    assert not choice.is_on
    assert choice.reasons[0].startswith("compile no: the layers take ")
    assert choice.reasons[0].endswith(" s in the whole run, too few to repay compiling")
    assert choose_compile("no", tiny, RECIPE, CPU, is_alone=True) == compiled.CompileChoice(is_on=False)


def test_several_ranks_are_refused_by_name(tiny):
    """`yes` on several ranks is refused with what to do; `auto` leaves it off and says so."""
    with pytest.raises(SetupError, match=r"one process alone; set compile to no"):
        choose_compile("yes", tiny, RECIPE, CPU, is_alone=False)
    assert choose_compile("auto", tiny, RECIPE, CPU, is_alone=False).reasons == (
        "compile no: it is built for one process alone",
    )


def test_a_machine_without_a_compiler_is_told(tiny, monkeypatch):
    """Where torch cannot compile, the first line of its reason is told before anything is trained."""

    def broken(*_, **__):
        raise RuntimeError("\nno working C++ compiler\nset CXX")

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(SetupError, match="compiled here: no working C\\+\\+ compiler; set compile to no"):
        choose_compile("yes", tiny, RECIPE, CPU, is_alone=True)


@pytest.mark.parametrize(
    ("device", "compiled_s", "is_on"),
    [
        (CUDA, 1.0, True),  # 2 layers · 100 steps · (2 - 1) s = 200 s saved
        (CUDA, 1.7, False),  # 60 s saved for 100 s of compiling
        (CPU, 1.0, True),
        (CPU, 1.97, False),  # less than 2 % faster
    ],
)
def test_the_gain_over_the_run_decides(tiny, monkeypatch, device, compiled_s, is_on):
    """Compiling takes 100 s here, and a layer 2 s as it is: it is done where the run gains more than that."""
    monkeypatch.setattr(compiled, "_fault_of_compiler", lambda _: "")
    monkeypatch.setattr(compiled.Trial, "of", lambda *_: None)
    monkeypatch.setattr(compiled, "_plain_s", lambda _: 2.0)
    monkeypatch.setattr(compiled, "_compared", lambda _: (100.0, 2.0, compiled_s))
    choice = choose_compile("auto", tiny, RECIPE, device, is_alone=True)
    assert choice.is_on is is_on
    assert f"a layer takes 2 s as it is and {1 - compiled_s / 2:.0%} less compiled" in choice.reasons[0]


def test_the_probe_runs_for_every_model(any_spec, counted, monkeypatch):
    """A model of one dense layer can be timed whatever the model is, unless all its layers have experts."""
    if all(any_spec.layer(i).is_moe for i in range(any_spec.num_layers)):
        return
    monkeypatch.setattr(compiled, "PROBE_S", 0.0)
    trial = compiled.Trial.of(any_spec, RECIPE, CPU)
    assert compiled._plain_s(trial) > 0
    assert counted == []
    assert all(seconds > 0 for seconds in compiled._compared(trial))
    assert len(counted) == 1 + 5  # once to compile, and once of each pair


@pytest.mark.filterwarnings("ignore")  # torch warns of itself while it compiles
def test_a_compiled_run_is_resumed_bit_for_bit(config):
    """Compiled for real: near the plain run's losses, repeated to the bit after a resume, refused without compiling."""
    config = replace(config, compile="yes")
    setup = resolve(config)
    assert setup.identity.numerics["compiled"] is True
    folder = new_run(setup)
    whole = [event for event in train(setup, folder) if type(event).__name__ == "Step"]
    plain = resolve(replace(config, compile="no"))
    others = [event for event in train(plain, new_run(plain)) if type(event).__name__ == "Step"]
    assert [event.loss for event in whole] == pytest.approx([event.loss for event in others], rel=1e-5)
    checkpoint = min(folder.checkpoints.iterdir())
    assert not [name for name in Manifest.read(checkpoint).pieces("weights") if "_orig_mod" in name]
    again = [event for event in train(setup, new_run(setup), checkpoint=checkpoint) if type(event).__name__ == "Step"]
    assert [event.loss for event in again] == [event.loss for event in whole][again[0].step :]
    with pytest.raises(ResumeRefused, match=r"numerics.compiled: True in the checkpoint, nothing now \(compiled"):
        resume_changes(checkpoint, plain)
