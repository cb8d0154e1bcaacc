from dataclasses import replace

import pytest
import torch

from torchledger.config import ConfigError
from torchledger.spec import OptimizerSpec, Recipe, Strategy
from torchledger.trainer.identity import Identity, numerics

RECIPE = Recipe(batch_size=4, sequence_length=16, num_tokens=6400, optimizer=OptimizerSpec(learning_rate=1e-2))


@pytest.fixture
def identity(tiny):
    return Identity(tiny, RECIPE, {"train_sha256": "ab"}, numerics(torch.device("cpu")))


def test_rows_read_back(identity, any_spec):
    """What is written as rows is read back equal, for every architecture."""
    whole = replace(identity, spec=any_spec)
    assert Identity.from_dict(whole.to_dict()) == whole


def test_the_same_run_has_no_changes(identity):
    """A run differs from itself in nothing."""
    assert identity.model_changes(identity) == ()
    assert identity.changes(identity, 0) == ()


def test_every_differing_field_of_a_model_is_named(identity, tiny):
    """Two other sizes are two changes with both values; another name is none."""
    other = replace(tiny, num_layers=3, attention=replace(tiny.attention, num_heads=2), name="other", source="else")
    changes = identity.model_changes(replace(identity, spec=other))
    assert [str(change) for change in changes] == [
        "spec.num_layers: 2 in the checkpoint, 3 now",
        "spec.attention.num_heads: 4 in the checkpoint, 2 now",
    ]


def test_other_threads_data_and_seed_are_changes(identity):
    """What decides bits beside the model: recipe, data, threads."""
    now = replace(
        identity,
        recipe=replace(RECIPE, seed=7),
        data={"train_sha256": "cd"},
        numerics={**identity.numerics, "num_threads": 64},
    )
    assert [change.field for change in identity.changes(now, 0)] == [
        "recipe.seed",
        "data.train_sha256",
        "numerics.num_threads",
    ]


def test_another_horizon_says_what_becomes_of_the_learning_rate(identity):
    """Twice the tokens halve the cosine's progress: step 99, the last of 100, goes from a tenth to about half."""
    now = replace(identity, recipe=replace(RECIPE, num_tokens=2 * 6400))
    (change,) = identity.changes(now, 99)
    assert change.field == "recipe.num_tokens"
    length, rate = change.note.split("; ")
    assert length == "num_steps: 100 in the checkpoint, 200 now"
    assert rate.startswith("learning rate of step 99: 0.001 becomes 0.0055")


def test_a_field_of_a_later_version_is_an_error(identity):
    """A manifest with a field that this version does not know is not half understood."""
    row = identity.to_dict()
    row["spec"]["num_wings"] = 2
    with pytest.raises(ConfigError, match="num_wings"):
        Identity.from_dict(row)


def test_another_number_of_ranks_or_layout_is_a_change(identity):
    """Two ranks in place of one, and shards in place of replicas, are told with what they do to the sums."""
    cpu = torch.device("cpu")
    replicas = replace(identity, numerics=numerics(cpu, 2, Strategy(data_parallel=2)))
    shards = replace(identity, numerics=numerics(cpu, 2, Strategy(data_parallel=2, shard_level=3)))
    changes = {change.field: str(change) for change in identity.changes(replicas, 0)}
    assert changes.keys() == {"numerics.world_size", "numerics.layout"}
    assert changes["numerics.world_size"].startswith(
        "numerics.world_size: 1 in the checkpoint, 2 now (the same batches"
    )
    assert [change.field for change in replicas.changes(shards, 0)] == ["numerics.layout"]


def test_what_only_moves_transfers_is_no_change():
    """When weights are fetched changes no sum, and one process has no layout at all."""
    cpu = torch.device("cpu")
    a, b = (numerics(cpu, 2, Strategy(data_parallel=2, shard_level=3, prefetch=n)) for n in (1, 2))
    assert a == b
    assert "layout" not in numerics(cpu, 1, Strategy(shard_level=3))
