import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.testing._internal.distributed.fake_pg import FakeStore

from torchledger.spec import Recipe, Strategy
from torchledger.spec import load as load_spec
from torchledger.trainer.checkpoint import model_state
from torchledger.trainer.errors import CheckpointMismatch, SetupError
from torchledger.trainer.initial_weights import check_initial_weights, give_values, meta_model
from torchledger.trainer.sample import load_model
from torchledger.trainer.setup import resolve
from torchledger.trainer.step import build_model, build_step

LLAMA = Path(__file__).parent / "huggingface" / "llama"
RECIPE = Recipe(batch_size=2, sequence_length=8, num_tokens=160)


def test_a_step_begins_with_the_weights_of_a_folder():
    """The first loss is that of the stored logits: mean of logsumexp less the target's logit."""
    stored = load_file(LLAMA / "logits.safetensors")
    ids, logits = stored["ids"], stored["logits"]
    step = build_step(load_spec(LLAMA), replace(RECIPE, sequence_length=12), weights=LLAMA)
    result = step([(ids[:, :-1], ids[:, 1:])], 0)
    picked = logits[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    wanted = (logits[:, :-1].logsumexp(-1) - picked).mean()
    assert result.loss.item() == pytest.approx(wanted.item(), rel=1e-5)


def test_a_folder_is_checked_without_reading_its_weights():
    """On a model of no memory, the check tells how many tensors there are and in which format: 3 + 2·9."""
    told = check_initial_weights(LLAMA, meta_model(load_spec(LLAMA), RECIPE))
    assert told == (f"21 tensors of {LLAMA} (F32) are the initial weights",)


def test_another_model_is_refused_and_its_fields_named():
    """Weights of a model that computes something else are refused; a longer context and dropout are no difference."""
    spec = load_spec(LLAMA)
    other = replace(spec, attention=replace(spec.attention, query_key_norm="head"))
    with pytest.raises(SetupError, match=r"differs from llama in attention\.query_key_norm"):
        check_initial_weights(LLAMA, meta_model(other, RECIPE))
    longer = replace(spec, max_sequence_length=4096, attention=replace(spec.attention, dropout=0.1))
    assert check_initial_weights(LLAMA, meta_model(longer, RECIPE))


def test_no_weights_is_an_error_that_says_what_is_accepted(tiny, tmp_path):
    """An empty folder is neither of the three."""
    with pytest.raises(SetupError, match="neither a Hugging Face folder"):
        check_initial_weights(tmp_path, meta_model(tiny, RECIPE))


@pytest.mark.parametrize("place", ["run", "checkpoint"])
def test_a_run_begins_where_another_ended(run, config, place):
    """The weights of a run's newest checkpoint are the first values, to the bit; the optimizer begins anew."""
    folder, _ = run(replace(config, eval_interval=0))
    found = folder.path if place == "run" else folder.checkpoints / "step-00000006"
    model = build_model(config.model, RECIPE)
    give_values(model, RECIPE, found)
    before, _ = load_model(found, torch.device("cpu"))
    after = model_state(model)
    assert all(torch.equal(tensor, after[name]) for name, tensor in model_state(before).items())


@pytest.mark.parametrize("stored", ["folder", "checkpoint"])
@pytest.mark.parametrize(
    "strategy",
    [Strategy(data_parallel=4, shard_level=3), Strategy(data_parallel=2, tensor_parallel=2, shard_level=3)],
    ids=["shards", "shards of split matrices"],
)
def test_a_rank_has_its_part_of_stored_weights(run, config, stored, strategy):
    """The last of four ranks, whose collectives do nothing, has the rows and columns of each tensor that are its own.

    With a master copy FP32 parts are kept besides, all digits of them.
    """
    place = LLAMA if stored == "folder" else run(replace(config, eval_interval=0))[0].path
    spec = load_spec(LLAMA) if stored == "folder" else config.model
    wanted = dict(build_step(spec, RECIPE, weights=place).model.named_parameters())
    mine = replace(RECIPE, precision="bf16-master")
    dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=4)
    try:
        step = build_step(spec, mine, strategy=strategy, weights=place)
        for name, parameter in step.model.named_parameters():
            local = parameter.to_local().detach()
            _, offset = compute_local_shape_and_global_offset(
                parameter.shape, parameter.device_mesh, parameter.placements
            )
            part = wanted[name][tuple(slice(o, o + n) for o, n in zip(offset, local.shape, strict=True))]
            assert local.numel() < wanted[name].numel()
            assert torch.equal(local, part.bfloat16()), name
            assert torch.equal(step.optimizer.state[parameter]["master"].to_local(), part), name
    finally:
        dist.destroy_process_group()


def test_adapters_are_drawn_and_the_rest_is_read():
    """With adapters the folder's weights are read, A is drawn, B is zero: the first loss is the folder's own."""
    spec = load_spec(LLAMA)
    plain, adapted = build_model(spec, RECIPE), build_model(spec, replace(RECIPE, lora_rank=4))
    give_values(plain, RECIPE, LLAMA)
    give_values(adapted, RECIPE, LLAMA)
    state = model_state(adapted)
    assert state["layers.0.attention.query.lora_a.weight"].std() > 0
    ids = torch.arange(8)[None]
    with torch.no_grad():
        assert torch.equal(plain(ids), adapted(ids))


def test_stored_adapters_are_never_dropped(run, config):
    """A run with adapters is another model without them: its checkpoint does not begin a run that has none."""
    folder, _ = run(
        replace(config, recipe=replace(config.recipe, lora_rank=2), sample=replace(config.sample, length=0))
    )
    with pytest.raises(CheckpointMismatch, match="lora_a"):
        check_initial_weights(folder.path, meta_model(config.model, RECIPE))
    check_initial_weights(folder.path, meta_model(config.model, replace(RECIPE, lora_rank=2)))


def test_a_whole_run_from_a_folder(run, config, data_folder, tmp_path):
    """A run on weights says so and is not told that its first loss is not ln(vocabulary); data beyond it is refused."""
    spec = replace(load_spec(LLAMA), vocab_size=61)
    with pytest.raises(SetupError, match="vocabulary"):  # bytes need 257
        resolve(replace(config, model=spec, initial_weights=LLAMA))
    first, _ = run(config)
    _, events = run(replace(config, initial_weights=first.path, name="second"))
    said = next(event for event in events if type(event).__name__ == "Started").assumptions
    assert any("initial weights are those of" in line for line in said)
    losses = [event.loss for event in events if type(event).__name__ == "Step"]
    assert losses[0] < math.log(config.model.vocab_size)
    assert not [event for event in events if type(event).__name__ == "Warned"]


def test_every_parameter_has_a_value(any_spec):
    """Drawing leaves no parameter without a value."""
    model = build_model(any_spec, RECIPE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(math.nan)
    give_values(model, RECIPE, None)
    assert all(parameter.isfinite().all() for parameter in model.parameters())
