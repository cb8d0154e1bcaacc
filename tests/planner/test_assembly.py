"""Layers over chunks: evenly, as a user says, and every kind where it stands."""

from __future__ import annotations

import pytest

from torchledger.planner.assembly import assemble, layers_of_chunks
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, Strategy

TINY = ModelSpec("tiny", 100, 64, 8, 32, AttentionSpec(4), MlpSpec(64))
KINDS = (("embedding", ()), ("layer", ((0, 8),)), ("head", ()))


@pytest.mark.parametrize("num_layers", [1, 7, 8, 61, 126])
@pytest.mark.parametrize("num_chunks", [1, 2, 5, 16])
@pytest.mark.parametrize("together", [False, True])
def test_every_layer_is_somewhere_and_chunks_differ_by_at_most_one(
    num_layers: int, num_chunks: int, together: bool
) -> None:
    counts = layers_of_chunks(num_layers, num_chunks, together)
    assert len(counts) == num_chunks
    assert sum(counts) == num_layers
    ends = 2 if together and num_chunks > 1 else 0
    weighed = [n + (ends > 0 and i in {0, num_chunks - 1}) for i, n in enumerate(counts)]
    assert max(weighed) - min(weighed) <= 1


def test_virtual_stages_take_turns() -> None:
    """Chunk k of the model lies on stage k modulo stages."""
    strategy = Strategy(pipeline_parallel=2, virtual_stages=2, schedule="interleaved")
    found = assemble(KINDS, TINY, strategy, embeddings_as_layers=False)
    assert found == ((((0, 1), (1, 2)), ((1, 2),)), (((1, 2),), ((1, 2), (2, 1))))


def test_dualpipe_holds_every_part_twice() -> None:
    """Rank r holds part r and part p - 1 - r (arXiv:2412.19437, section 3.2.1)."""
    found = assemble(KINDS, TINY, Strategy(pipeline_parallel=2, schedule="dualpipe"), embeddings_as_layers=False)
    assert found == ((((0, 1), (1, 4)), ((1, 4), (2, 1))), (((1, 4), (2, 1)), ((0, 1), (1, 4))))


def test_a_users_own_split_is_kept() -> None:
    strategy = Strategy(pipeline_parallel=3, stage_layers=(2, 4, 2))
    found = assemble(KINDS, TINY, strategy, embeddings_as_layers=False)
    assert [sum(n for i, n in stage[0] if i == 1) for stage in found] == [2, 4, 2]


def test_layers_of_two_kinds_are_counted_where_they_stand() -> None:
    """DeepSeek's first layers are dense: they are on the first stage."""
    mixed = ModelSpec(
        "mixed", 100, 64, 8, 32, AttentionSpec(4), MlpSpec(64), moe=MoeSpec(4, 2, 16, num_leading_dense_layers=3)
    )
    kinds = (("embedding", ()), ("layer", ((0, 3),)), ("layer", ((3, 5),)), ("head", ()))
    found = assemble(kinds, mixed, Strategy(pipeline_parallel=2), embeddings_as_layers=False)
    assert found == ((((0, 1), (1, 3), (2, 1)),), (((2, 4), (3, 1)),))


def test_layers_that_differ_in_training_alone_are_counted_where_they_stand() -> None:
    """Layers 2, 3, 6 and 7 are trained and look like the others: each stage has two of its four."""
    kinds = (("embedding", ()), ("layer", ((0, 2), (4, 2))), ("layer", ((2, 2), (6, 2))), ("head", ()))
    found = assemble(kinds, TINY, Strategy(pipeline_parallel=2), embeddings_as_layers=False)
    assert found == ((((0, 1), (1, 2), (2, 2)),), (((1, 2), (2, 2), (3, 1)),))
