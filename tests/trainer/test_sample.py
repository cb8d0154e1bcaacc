from dataclasses import replace

import pytest
import torch

from torchledger.spec import Recipe
from torchledger.trainer.errors import CheckpointError, RunFolderError
from torchledger.trainer.events import Sampled
from torchledger.trainer.init import initialize
from torchledger.trainer.model import build
from torchledger.trainer.run_config import SampleConfig
from torchledger.trainer.sample import load_model, sample, write_text_from
from torchledger.trainer.tokenizer import ByteTokenizer

RECIPE = Recipe(sequence_length=16)
CPU = torch.device("cpu")


@pytest.fixture
def model(tiny):
    model = build(tiny, attention="math")
    initialize(model, "fan_in", 0)
    return model


def written(model, seed=1, step=0, **fields):
    return sample(model, ByteTokenizer(), SampleConfig(**fields), RECIPE, seed=seed, step=step)


def test_the_same_seed_and_step_write_the_same(model):
    """Text is a function of weights, seed and step; another of them gives another text."""
    text = written(model, prompt="def", length=20)
    assert text == written(model, prompt="def", length=20)
    assert text != written(model, prompt="def", length=20, seed=2)
    assert text != written(model, prompt="def", length=20, step=1)


def test_it_disturbs_no_random_stream(model):
    """Sampling moves no generator of torch's and leaves the model in training mode."""
    before = torch.get_rng_state()
    written(model, length=5)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training


def test_temperature_0_takes_the_likeliest(model):
    """At temperature 0 every token is the likeliest after those before it, however the seed."""
    tokenizer = ByteTokenizer()
    ids = [tokenizer.end_of_text_id, *tokenizer.encode("ab")]
    model.eval()
    for _ in range(6):
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    assert written(model, prompt="ab", length=6, temperature=0) == tokenizer.decode(ids[3:])
    assert written(model, prompt="ab", length=6, temperature=0, seed=9) == tokenizer.decode(ids[3:])


def test_the_smallest_temperature_takes_the_likeliest_too(model):
    """A temperature that no logit can be divided by in single precision is cold, not undefined."""
    assert written(model, prompt="ab", length=6, temperature=1e-300) == written(
        model, prompt="ab", length=6, temperature=0
    )


def test_top_1_is_the_likeliest_too(model):
    """Drawing from the single likeliest token is taking it."""
    assert written(model, prompt="ab", length=6, top_k=1) == written(model, prompt="ab", length=6, temperature=0)


def test_it_ends_with_the_document(model):
    """The end-of-text token ends the text and is not in it."""
    with torch.no_grad():
        model.head.weight.zero_()
        model.final_norm.weight.zero_()
        bias = torch.zeros(257)
        bias[256] = 100.0
    model.head.bias = torch.nn.Parameter(bias)
    assert written(model, prompt="ab", length=10) == ""


def test_a_text_may_be_longer_than_the_models_sequence(model):
    """The model sees the last `sequence_length` tokens; the text goes on."""
    assert len(ByteTokenizer().encode(written(model, prompt="x" * 30, length=40, temperature=0))) >= 40


def test_a_runs_model_writes_what_it_wrote_at_its_end(config, run):
    """From the run's folder alone, without its data, the same text as the run's own sample."""
    folder, events = run(replace(config, sample=SampleConfig(prompt="line", length=12)))
    text = next(event.text for event in events if type(event).__name__ == "Sampled")
    assert write_text_from(folder.path, SampleConfig(prompt="line", length=12), CPU) == text
    last = folder.checkpoints / "step-00000008"
    assert write_text_from(last, SampleConfig(prompt="line", length=12), CPU) == text
    assert load_model(last, CPU)[1].step == 8


def test_no_checkpoint_and_no_run_are_told(tmp_path, tiny):
    """A folder without a checkpoint, or outside any run, is an error that says so."""
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        load_model(tmp_path, CPU)
    with pytest.raises(RunFolderError, match="no run"):
        write_text_from(tmp_path, SampleConfig(), CPU)


@pytest.mark.parametrize("precision", ["bf16-pure", "bf16-master"])
def test_a_model_in_sixteen_bits_writes_the_same_text_again(run, config, precision):
    """What is stored in BF16 is read in BF16: the checkpoint's text is that of the end of the run."""
    recipe = replace(config.recipe, precision=precision)
    folder, events = run(replace(config, recipe=recipe, sample=SampleConfig("a", 8)))
    told = next(event.text for event in events if isinstance(event, Sampled))
    assert write_text_from(folder.path, SampleConfig("a", 8), CPU) == told
    model, _ = load_model(folder.path, CPU)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
