"""`count`: the ledger of one training step, by arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchledger import ops
from torchledger.formula.core import why_scores_are_kept
from torchledger.formula.kernels import Kernels, kernels_of
from torchledger.formula.model import walk
from torchledger.formula.optimizer import optimizer_lines, trained
from torchledger.formula.parameters import Parameter, embedding_parameters, head_parameters, parameters
from torchledger.formula.precision import FORMATS
from torchledger.formula.tape import Tape
from torchledger.formula.value import ELEMENT_BYTES
from torchledger.ledger import Amount, Convention, Ledger, Line
from torchledger.spec import ModelSpec, Recipe

#: Longest sequence that `count` assumes where nothing is said.
LONGEST_DEFAULT = 8192

KEPT_ASSUMPTION = "kept bytes are those of the CPU's kernels of PyTorch 2.13 (RMSNorm made of single operations)"
BLOCKS_ASSUMPTION = (
    "executed attention FLOPs take the whole square: blocks that a fused kernel skips are counted as run"
)
DOCUMENTS_ASSUMPTION = (
    "documents kept apart: exact attention FLOPs take every sequence for one document, for how long the data's are is "
    "not known here; the pairs of shorter ones are fewer"
)
MICRO_BATCHES_ASSUMPTION = "kept bytes of lines are those of all micro-batches, of which one at a time is alive"


def default_recipe(spec: ModelSpec) -> Recipe:
    """One sequence as long as the model allows, but no longer than 8192 tokens."""
    return Recipe(batch_size=1, sequence_length=min(spec.max_sequence_length, LONGEST_DEFAULT))


def count(
    spec: ModelSpec,
    recipe: Recipe | None = None,
    *,
    convention: Convention | None = None,
    kernels: Kernels | str = "cpu",
) -> Ledger:
    """The ledger of one optimizer step: forward, backward, recompute, loss, clipping, optimizer.

    Equal layers are one line with their number in `times`, under `layers.*`. Every line holds full, exact and executed
    FLOPs; `convention` only says which of them `Ledger.flops` reads.

    `bytes_kept` of the forward lines adds up to the activations of all micro-batches; those of one are alive at once
    (`memory`).

    Args:
        spec: the model.
        recipe: how it is trained; nothing is `default_recipe(spec)`.
        convention: how FLOPs are read; nothing is model FLOPs.
        kernels: which kernels run, a set or its name (`KERNELS`).

    Raises:
        SpecError: no kernels of that name.

    >>> from torchledger.spec import AttentionSpec, MlpSpec
    >>> tiny = ModelSpec("tiny", 100, 64, 2, 32, AttentionSpec(4), MlpSpec(64))
    >>> ledger = count(tiny, Recipe(batch_size=2, sequence_length=8))
    >>> ledger.where(phase="forward").flops  # 2·16·(2·(4·32² + 3·32·64) + 100·32) + 2·(2·2·2·8²·32)
    790528
    >>> ledger.where(phase="backward").flops == 2 * ledger.where(phase="forward").flops
    True
    """
    recipe = default_recipe(spec) if recipe is None else recipe
    chosen = kernels_of(kernels)
    tape = walk(spec, recipe, chosen)
    kept = KEPT_ASSUMPTION if chosen.name == "cpu" else f"kernels {chosen.name}: {chosen.source}"
    assumptions = [*tape.assumptions, kept]
    if recipe.attention == "fused" and chosen.name == "cpu":
        why = why_scores_are_kept(spec)
        assumptions.append(
            f"no fused attention: {why}, so that the CPU writes and keeps them" if why else BLOCKS_ASSUMPTION
        )
    if recipe.document_mask:
        assumptions.append(DOCUMENTS_ASSUMPTION)
    if recipe.accumulation_steps != 1:
        assumptions.append(MICRO_BATCHES_ASSUMPTION)
    return Ledger.of(_lines(spec, recipe, tape), convention=convention, assumptions=assumptions)


def _lines(spec: ModelSpec, recipe: Recipe, tape: Tape) -> Iterator[Line]:
    steps: Amount = recipe.accumulation_steps
    for line in tape.lines():
        yield line if steps == 1 else line.repeated(steps)
    moved = trained(parameters(spec, recipe))
    for line in shared_lines(spec, recipe):
        yield line.repeated(steps)
    for line in prediction_lines(spec, recipe):
        yield line.repeated(steps * spec.num_prediction_layers)
    if steps != 1:
        yield from accumulation_lines(moved, recipe, times=steps - 1)
    yield from optimizer_lines(moved, recipe.optimizer, recipe.precision)


def shared_lines(spec: ModelSpec, recipe: Recipe) -> tuple[Line, ...]:
    """The gradient of a tied head added to the lookup's, for one micro-batch."""
    if not spec.tied_embeddings:
        return ()
    return tuple(accumulation_lines(embedding_parameters(spec, recipe)[:1], recipe, "embedding"))


def prediction_lines(spec: ModelSpec, recipe: Recipe) -> tuple[Line, ...]:
    """The gradients that one prediction layer's embedding and head add to the model's own, for one micro-batch."""
    if not spec.num_prediction_layers:
        return ()
    table = embedding_parameters(spec, recipe)[0]
    head = next(each for each in head_parameters(spec, recipe) if each.name == "head.weight")
    shared = (table, table if spec.tied_embeddings else head)
    return tuple(line for each in shared for line in accumulation_lines((each,), recipe, "prediction.*"))


def accumulation_lines(
    parameters: Sequence[Parameter], recipe: Recipe, module: str = "", *, times: Amount = 1
) -> Iterator[Line]:
    """Gradients of these parameters added to those that are there."""
    elements: Amount = sum(each.total for each in trained(parameters))
    if elements == 0:
        return
    number_format = FORMATS[recipe.precision].gradient
    for piece in ops.gradient_accumulation(elements, element_bytes=ELEMENT_BYTES[number_format]):
        yield piece.line(module, phase="backward", number_format=number_format, times=times)
