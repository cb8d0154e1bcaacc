from dataclasses import replace

import pytest
import torch

from torchledger.meter.device import DeviceError
from torchledger.spec import Recipe, SpecError, Strategy
from torchledger.trainer.errors import SetupError
from torchledger.trainer.precision import PrecisionError
from torchledger.trainer.prepared import PrepareError
from torchledger.trainer.setup import resolve

pytestmark = pytest.mark.usefixtures("one_thread")


def test_everything_open_is_decided(config):
    """Steps become tokens, `auto` becomes a format and a kernel, each with its reason; the result asks nothing more."""
    setup = resolve(replace(config, precision="auto", attention="auto"))
    assert setup.recipe.num_tokens == 8 * 4 * 16
    assert setup.recipe.num_steps == 8
    assert sum(reason.startswith(("precision", "attention")) for reason in setup.assumptions) == 2
    assert resolve(setup.config).recipe == setup.recipe
    assert (setup.config.device, setup.config.num_threads) == ("cpu", 1)


def test_a_named_format_and_kernel_go_into_the_recipe(config):
    """A precision and a kernel of the run replace the recipe's; `recipe` leaves them."""
    assert resolve(replace(config, precision="bf16", attention="math")).recipe.precision == "bf16"
    assert resolve(replace(config, attention="math")).recipe.attention == "math"
    assert resolve(config).recipe.precision == "fp32"


def test_a_strategy_without_effect_is_told(config):
    """Shards of one process are the whole: the assumptions say so, and nothing where no strategy was asked for."""
    sharded = resolve(replace(config, strategy=Strategy(shard_level=3)))
    assert any("has no effect" in line for line in sharded.assumptions)
    assert not any("has no effect" in line for line in resolve(config).assumptions)


@pytest.mark.parametrize(("length", "is_told"), [(32, False), (33, True)])
def test_sequences_beyond_the_models_length_are_told(config, length, is_told):
    """Rotary positions have no end, so a longer sequence trains: one token beyond max_sequence_length 32 is told."""
    setup = resolve(replace(config, recipe=replace(config.recipe, sequence_length=length)))
    told = [line for line in setup.assumptions if "longer than" in line]
    assert told == [f"sequences of {length} tokens are longer than tiny's 32: its rotary positions go on"] * is_told


def test_a_preset_is_found_by_name(config, data_folder):
    """A model may be a preset's name; an unknown one is told with what was probably meant."""
    assert resolve(replace(config, model="gpt2")).spec.num_layers == 12
    with pytest.raises(SpecError, match="gpt2"):
        resolve(replace(config, model="gtp2"))


def test_epochs_are_stated_when_tokens_exceed_the_data(config):
    """A run longer than its data says how many times it passes over it; a shorter one does not."""
    setup = resolve(config)
    steps = 3 * setup.num_windows // 4  # four windows a step: three passes
    longer = resolve(replace(config, num_steps=steps))
    assert longer.epochs == pytest.approx(3, rel=0.01)
    assert any("times over the" in line for line in longer.assumptions)
    assert setup.epochs < 1
    assert not any("times over the" in line for line in setup.assumptions)


def test_a_vocabulary_beyond_the_models_is_refused_before_the_device_sees_it(config, tiny):
    """Data with ids that the model has no embedding for is refused with both sizes."""
    with pytest.raises(SetupError, match=r"vocabulary of 257, model tiny only 100.*at least 257"):
        resolve(replace(config, model=replace(tiny, vocab_size=100)))


def test_too_little_data_is_told(config, tiny):
    """Data shorter than one sequence is refused with both lengths."""
    recipe = Recipe(batch_size=1, sequence_length=100_000)
    with pytest.raises(SetupError, match="too few for one sequence of 100,000"):
        resolve(replace(config, model=replace(tiny, max_sequence_length=100_000), recipe=recipe))


def test_missing_and_truncated_data_are_told(config, tmp_path, data_folder):
    """No prepared folder, and a token file cut short, are errors that say so."""
    with pytest.raises(PrepareError, match="run prepare first"):
        resolve(replace(config, data=tmp_path / "nothing"))
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in data_folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    content = (copy / "train.tokens").read_bytes()
    (copy / "train.tokens").write_bytes(content[:-100])
    with pytest.raises(PrepareError, match="truncated: 100 of"):
        resolve(replace(config, data=copy))


def test_changed_bytes_are_found_before_anything_is_trained(config, tmp_path, data_folder, monkeypatch):
    """A token file of the right size with other ids in it is refused; one too large to read through is called so."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in data_folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    content = bytearray((copy / "train.tokens").read_bytes())
    content[4097] ^= 0xFF  # the high byte of the first id
    (copy / "train.tokens").write_bytes(content)
    with pytest.raises(PrepareError, match="beyond its vocabulary of 257"):
        resolve(replace(config, data=copy))
    monkeypatch.setattr("torchledger.trainer.run_data.VERIFIED_BYTES", 0)
    assert any("were not read through" in line for line in resolve(replace(config, data=copy)).assumptions)


def test_fp16_on_a_cpu_and_a_missing_gpu_are_told(config):
    """A format and a device that are not to be had here are refused with the reason."""
    with pytest.raises(PrecisionError, match="many times slower"):
        resolve(replace(config, device="cpu", precision="fp16"))
    if not torch.cuda.is_available():
        with pytest.raises(DeviceError, match="cuda"):
            resolve(replace(config, device="cuda"))


def test_a_sequence_beyond_the_learned_positions_is_told(config):
    """A recipe that the model has no positions for is refused by name."""
    recipe = Recipe(batch_size=1, sequence_length=1025)
    with pytest.raises(SpecError, match="sequence_length"):
        resolve(replace(config, model="gpt2", recipe=recipe))


def test_threads_that_nobody_chose_are_told(config):
    """Without a number torch's own is taken and said to be; with one there is nothing to say."""
    told = [line for line in resolve(replace(config, num_threads=None)).assumptions if line.startswith("threads 1")]
    assert len(told) == 1
    assert "not probed, since their number decides bits" in told[0]
    assert not any(line.startswith("threads") for line in resolve(config).assumptions)


def test_what_recipe_and_layout_cannot_be_is_told_together(config):
    """A state in host memory and ranks that are not there are two mistakes of one answer."""
    recipe = replace(config.recipe, offload_optimizer=True)
    with pytest.raises(SpecError, match=r"(?s)offload_optimizer.*is for 2 ranks, and 1 run"):
        resolve(replace(config, recipe=recipe, strategy=Strategy(pipeline_parallel=2)))
