"""`assembly`: which layers each pipeline rank holds, as counts of the model's distinct blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from torchledger.planner.schedule import parts
from torchledger.planner.stage import BlockKind
from torchledger.spec import ModelSpec, Strategy

#: [stage][chunk] of (index of a block, how many).
Assembly = tuple[tuple[tuple[tuple[int, int], ...], ...], ...]

#: Neighbouring layers of one kind: (index of the first, how many) of each run.
Runs = tuple[tuple[int, int], ...]


@cache
def layers_of_chunks(num_layers: int, num_chunks: int, embeddings_as_layers: bool) -> tuple[int, ...]:
    """Layers of each chunk in the order of the model, as even as they go; what is over goes to the first middle chunks.

    The first chunk has the embedding and the last the head, so they are the last to get one more.

    >>> layers_of_chunks(80, 4, False), layers_of_chunks(126, 16, True)[:2], sum(layers_of_chunks(126, 16, True))
    ((20, 20, 20, 20), (7, 8), 126)
    """
    units = num_layers + (2 if embeddings_as_layers and num_chunks > 1 else 0)
    each, rest = divmod(units, num_chunks)
    counts = [each] * num_chunks
    middle = [*range(1, num_chunks - 1), 0, num_chunks - 1][:rest] if num_chunks > 1 else [0] * rest
    for index in middle:
        counts[index] += 1
    if embeddings_as_layers and num_chunks > 1:
        counts[0] -= 1
        counts[-1] -= 1
    return tuple(counts)


def assemble(
    kinds: Sequence[tuple[BlockKind, Runs]], spec: ModelSpec, strategy: Strategy, *, embeddings_as_layers: bool
) -> Assembly:
    """The blocks of every chunk.

    Args:
        kinds: of the model's distinct blocks, what it is and where its layers are; an end of the model is nowhere.
        spec: the model.
        strategy: the layout.
        embeddings_as_layers: the stack counts embedding and head as a layer each where it spreads them.

    >>> from torchledger.spec import AttentionSpec, MlpSpec
    >>> tiny = ModelSpec("tiny", 100, 64, 4, 32, AttentionSpec(4), MlpSpec(64))
    >>> kinds = (("embedding", ()), ("layer", ((0, 4),)), ("head", ()))
    >>> assemble(kinds, tiny, Strategy(pipeline_parallel=2), embeddings_as_layers=False)
    ((((0, 1), (1, 2)),), (((1, 2), (2, 1)),))
    """
    held = parts(strategy.schedule, strategy.pipeline_parallel, strategy.virtual_stages)
    num_chunks = 1 + max(part for each in held for part in each)
    counts = strategy.stage_layers or layers_of_chunks(spec.num_layers, num_chunks, embeddings_as_layers)
    of_layer = _block_of_layer(kinds, spec.num_layers)
    first = next(i for i, (kind, _) in enumerate(kinds) if kind == "embedding")
    last = tuple(
        (i, sum(count for _, count in runs) or 1)
        for i, (kind, runs) in enumerate(kinds)
        if kind in {"prediction", "head"}
    )
    chunks: list[tuple[tuple[int, int], ...]] = []
    start = 0
    for index, count in enumerate(counts):
        found = [(first, 1)] if index == 0 else []
        found.extend(_counted(of_layer, start, count))
        found.extend(last if index == num_chunks - 1 else ())
        chunks.append(tuple(found))
        start += count
    return tuple(tuple(chunks[part] for part in each) for each in held)


def _counted(of_layer: int | Sequence[int], start: int, count: int) -> list[tuple[int, int]]:
    if isinstance(of_layer, int):
        return [(of_layer, count)] if count else []
    found: dict[int, int] = {}
    for block in of_layer[start : start + count]:
        found[block] = found.get(block, 0) + 1
    return list(found.items())


def _block_of_layer(kinds: Sequence[tuple[BlockKind, Runs]], num_layers: int) -> int | tuple[int, ...]:
    """The block of every layer; a number alone where all layers are of one kind."""
    layers = [(runs, i) for i, (kind, runs) in enumerate(kinds) if kind == "layer"]
    if len(layers) == 1:
        return layers[0][1]
    found = {layer: i for runs, i in layers for first, count in runs for layer in range(first, first + count)}
    return tuple(found[layer] for layer in range(num_layers))
