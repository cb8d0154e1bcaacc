"""Clipping and the optimizer's update as the trainer's allocate (`trainer.clipping`, `.optimizer`, `.one_by_one`)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torchledger.formula.lifetimes.autograd import Parameter
from torchledger.formula.lifetimes.memory import Block, Memory
from torchledger.formula.lifetimes.tensors import SIZES
from torchledger.formula.optimizer import BLOCK_8BIT, CHUNK_8BIT, SMALLEST_8BIT
from torchledger.formula.precision import FORMATS
from torchledger.spec import OptimizerSpec, Recipe

#: Newton-Schulz iterations of Muon, and the numbers of an 8-bit table.
_ITERATIONS, _CODES = 5, 256


def in_order(parameters: Sequence[Parameter]) -> list[Parameter]:
    """Those that are trained, as the model lists them, which is nearly as it uses them.

    Prediction layers come before the last norm and the head, and norms of queries and keys after the maps.
    """
    return sorted((each for each in parameters if each.tensor.leaf is not None), key=_place)


def _place(parameter: Parameter) -> tuple[int, int, int]:
    parts = parameter.name.split(".")
    kinds = {"layers": 1, "prediction": 2, "final_norm": 3, "embedding_projection_out": 3, "head": 3}
    kind = kinds.get(parts[0], 0)
    if kind not in {1, 2}:
        return kind, 0, 0
    if "attention" in parts:
        inner = parts[parts.index("attention") + 1]
        return kind, int(parts[1]), {"query_norm": 2, "key_norm": 2, "output": 3}.get(inner, 1)
    before = {"attention_norm", "hidden_norm", "embedding_norm", "projection"} & set(parts)
    return kind, int(parts[1]), 0 if before else 4


def clipped(memory: Memory, trained: Sequence[Parameter]) -> Block:
    """Scale gradients by their norm, which is what is left: a number of each, all of them, and a few."""
    memory.place = "clipping"
    norms = Block(memory, 4 * len(trained))
    stacked = Block(memory, 4 * len(trained))
    found = Block(memory, 4)
    del stacked
    moved, inverse = Block(memory, 4), Block(memory, 4)
    factor = Block(memory, 4)
    del moved, inverse
    limited = Block(memory, 4)
    del factor, limited, norms
    return found


def update(memory: Memory, parameters: Sequence[Parameter], recipe: Recipe, hidden_size: int) -> None:
    """One step of the optimizer, whose state is there."""
    memory.place = "optimizer step"
    spec, precision = recipe.optimizer, recipe.precision
    formats = FORMATS[precision]
    is_mixed = bool(formats.master) or formats.stored != formats.moment
    groups: dict[tuple[bool, float], list[Parameter]] = {}
    for decays in (True, False):
        for each in parameters:
            if _is_decayed(each) == decays:
                groups.setdefault((decays, _rate(each, recipe, hidden_size)), []).append(each)
    for (decays, _), group in groups.items():
        decay = spec.weight_decay if decays else 0.0
        if spec.kind in {"adamw", "sgd"} and not is_mixed:
            # no fused kernel of SGD moves 16-bit parameters, see the trainer's optimizer
            is_fused = spec.implementation == "fused" and (spec.kind == "adamw" or formats.stored == "fp32")
            _at_once(memory, group, spec, decays=decay > 0, is_fused=is_fused)
            continue
        for each in group:
            _one(memory, each, spec, precision, decays=decay > 0)


def _rate(parameter: Parameter, recipe: Recipe, hidden_size: int) -> float:
    """What its learning rate is multiplied with, which parameters of one group share (`trainer.init`, muP)."""
    if recipe.initialization != "mup":
        return 1.0
    r, name, is_sgd = hidden_size / recipe.mup_base_size, parameter.name, recipe.optimizer.kind == "sgd"
    inputs = ("embedding.weight", "position_embedding.weight")
    if len(parameter.tensor.shape) < 2 or name in inputs or name.endswith(".lora_b.weight"):
        return r if is_sgd else 1.0
    if name == "head.weight" or name.endswith((".router.weight", ".shared_gate.weight", ".lora_a.weight")):
        return 1 / r
    return 1.0 if is_sgd else 1 / r


def _is_decayed(parameter: Parameter) -> bool:
    return len(parameter.tensor.shape) >= 2 and not parameter.name.startswith("position_embedding")


def _at_once(memory: Memory, group: Sequence[Parameter], spec: OptimizerSpec, *, decays: bool, is_fused: bool) -> None:
    """AdamW and SGD of torch itself, over a group."""
    if is_fused:
        return
    if spec.implementation == "foreach":
        if group and (spec.kind == "adamw" or decays):
            held = [Block(memory, each.tensor.num_elements * SIZES[each.tensor.number_format]) for each in group]
            del held
        return
    denominator: Block | None = None
    for each in group:
        num_bytes = each.tensor.num_elements * SIZES[each.tensor.number_format]
        if spec.kind == "adamw":
            root = Block(memory, num_bytes)
            denominator = Block(memory, num_bytes)
            del root
        elif decays:
            gradient = Block(memory, num_bytes)
            del gradient
    del denominator


def _one(memory: Memory, parameter: Parameter, spec: OptimizerSpec, precision: str, *, decays: bool) -> None:
    """One parameter in FP32, whatever it is stored in (`trainer.one_by_one`)."""
    formats, shape, n = FORMATS[precision], parameter.tensor.shape, parameter.tensor.num_elements
    is_narrow = formats.stored != "fp32"
    is_matrix = len(shape) == 2 and parameter.name.startswith(("layers.", "prediction."))
    by_adamw = spec.kind == "adamw" or (spec.kind == "muon" and not is_matrix)
    moments = 2 if by_adamw else {"lion": 1, "muon": 1, "sgd": int(spec.momentum > 0)}.get(spec.kind, 0)
    wide = [
        Block(memory, 4 * n) for _ in range((is_narrow and not formats.master) + moments * (formats.moment != "fp32"))
    ]
    wide += [Block(memory, 4 * n)] if is_narrow else []
    if by_adamw:
        _adamw(memory, 4 * n, spec.implementation)
    elif spec.kind == "muon":
        _muon(memory, shape)
    elif spec.kind == "adafactor":
        _adafactor(memory, shape)
    elif spec.kind == "adamw-8bit":
        _adamw_8bit(memory, n)
    elif spec.kind == "lion" or decays:
        direction = Block(memory, 4 * n)
        del direction
    del wide


def _adamw(memory: Memory, num_bytes: int, implementation: str) -> None:
    if implementation != "fused":
        root = Block(memory, num_bytes)
        denominator = Block(memory, num_bytes) if implementation == "loop" else None
        del root, denominator


def _muon(memory: Memory, shape: Sequence[int]) -> None:
    n, short = prod(shape), min(shape)
    direction, x = Block(memory, 4 * n), Block(memory, 2 * n)
    norm, clamped = Block(memory, 2), Block(memory, 2)
    del norm, clamped
    gram: Block | None = None
    for _ in range(_ITERATIONS):
        gram = Block(memory, 2 * short * short)
        inner = Block(memory, 2 * short * short)
        x = Block(memory, 2 * n)
        del inner
    del direction, gram, x


def _adafactor(memory: Memory, shape: Sequence[int]) -> None:
    scale = _root_mean_square(memory)
    if len(shape) < 2:
        squares = Block(memory, 4 * prod(shape))
        del squares
        variance = Block(memory, 4 * prod(shape))
    else:
        norms: Block | None = None
        for size in (prod(shape[:-1]), prod(shape[:-2]) * shape[-1]):
            norms = Block(memory, 4 * size)
            means = Block(memory, 4 * size)
            del means
        variance = Block(memory, 4 * prod(shape))
        mean = Block(memory, 4 * prod(shape[:-2]))
        del mean, norms
    root = _root_mean_square(memory)
    quotient = Block(memory, 4)
    del root, quotient, variance, scale


def _root_mean_square(memory: Memory) -> Block:
    norm, found = Block(memory, 4), Block(memory, 4)
    del norm
    return found


def _adamw_8bit(memory: Memory, n: int) -> None:
    if n < SMALLEST_8BIT:
        root = Block(memory, 4 * n)
        del root
        return
    mean: Block | None = None
    square: Block | None = None
    for begin in range(0, n, CHUNK_8BIT):
        size = min(CHUNK_8BIT, n - begin)
        mean, square = (_decoded(memory, size) for _ in range(2))
        root = Block(memory, 4 * size)
        del root
        for _ in range(2):
            _encode(memory, size)
    del mean, square


def _decoded(memory: Memory, size: int) -> Block:
    known, codes = Block(memory, 4 * _CODES), Block(memory, 4 * size)
    found = Block(memory, 4 * size)
    del known, codes
    return found


def _encode(memory: Memory, size: int) -> None:
    for blocks in (size // BLOCK_8BIT, int(size % BLOCK_8BIT > 0)):
        clamped = Block(memory, 4 * blocks)
        del clamped
    known, sums = Block(memory, 4 * _CODES), Block(memory, 4 * (_CODES - 1))
    middles = Block(memory, 4 * (_CODES - 1))
    del sums
    places = Block(memory, 4 * size)
    del known, middles, places
