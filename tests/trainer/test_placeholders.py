import itertools

import torch
from torch import nn

from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe, Strategy
from torchledger.tracer import trace_step
from torchledger.trainer.layout import local_recipe
from torchledger.trainer.placeholders import fill, placeholders
from torchledger.trainer.step import build_step, example_batch


def test_parameters_have_no_memory_until_they_are_filled_and_buffers_keep_their_values():
    """Parameters are on meta, buffers are not; filled ones are on the device, tied ones still one."""
    with placeholders():
        net = nn.Sequential(nn.Embedding(10, 4), nn.BatchNorm1d(4), nn.Linear(4, 10, bias=False))
        net[2].weight = net[0].weight
    assert all(parameter.is_meta for parameter in net.parameters())
    assert torch.equal(net[1].running_var, torch.ones(4))
    fill(net, torch.device("cpu"))
    assert not any(parameter.is_meta for parameter in net.parameters())
    assert net[2].weight is net[0].weight
    assert nn.Linear(2, 2).weight.device.type == "cpu"  # and outside all is as before


def test_a_rank_of_eight_never_holds_the_whole_model():
    """Until the first step begins, a rank has allocated an eighth of the parameters and the batch, and no more."""
    spec = ModelSpec("m", 256, 64, 4, 64, AttentionSpec(4), MlpSpec(256))
    recipe, strategy = Recipe(batch_size=8, sequence_length=16), Strategy(data_parallel=8, shard_level=3)
    mine = local_recipe(recipe, strategy)

    def build():
        step, numbers = build_step(spec, mine, initialized=False, strategy=strategy), itertools.count()
        batch = example_batch(mine)
        return lambda: step(batch, next(numbers))

    timeline = trace_step(build, world_size=8).timeline
    whole = sum(p.numel() for p in build_step(spec, recipe).model.parameters()) * 4
    begun = timeline.marks["step 1"]
    assert whole // 8 <= max(timeline.curve()[:begun]) < 0.2 * whole
