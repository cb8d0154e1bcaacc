"""A moment of a training step with what is alive in it; three among them: a tied sum, first values, their rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchledger.formula.parameters import Parameter
from torchledger.formula.precision import FORMATS
from torchledger.formula.value import ELEMENT_BYTES
from torchledger.ledger import Amount
from torchledger.spec import ModelSpec, Recipe

_DRAWN_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class Moment:
    """What is alive at one moment of the step.

    Attributes:
        name: when it is.
        parts: bytes by part.
    """

    name: str
    parts: Mapping[str, Amount]

    @property
    def total_bytes(self) -> Amount:
        """Bytes of all parts."""
        return sum(self.parts.values())


def tied_sum(spec: ModelSpec, recipe: Recipe, standing: Mapping[str, Amount], gradients: Amount) -> tuple[Moment, ...]:
    """When autograd adds the gradients of a tied matrix, the head's and the embedding's, to a third.

    None where there is no such moment: under autocast the head's, cast back, is nobody else's and takes the other's in
    place; a loss in pieces has it ready.

    Args:
        spec: the model.
        recipe: how it is trained.
        standing: bytes by part of what is alive throughout.
        gradients: bytes of all gradients, the sum's among them.
    """
    formats = FORMATS[recipe.precision]
    if not spec.tied_embeddings or formats.is_autocast or recipe.loss_chunk:
        return ()
    matrix = ELEMENT_BYTES[formats.gradient] * spec.vocab_size * _embedding_width(spec)
    losses = 4 * (recipe.accumulation_steps + 1)  # the engine holds the gradient of the last one
    beside = {"losses": losses, "gradients": gradients}
    held = matrix * (2 + (recipe.accumulation_steps != 1))
    return (Moment("sum of the tied gradients", {**standing, **beside, "temporaries: embedding": held}),)


def narrowing(own: Sequence[Parameter], buffers: Amount, precision: str) -> tuple[Moment, ...]:
    """The making of a model whose FP32 values go once they are rounded: tensor after tensor, the smallest first.

    At tensor i of n_1 ≤ n_2 ≤ ... there are the narrow ones up to it and the FP32 ones from it on. Where an optimizer
    holds next to nothing, that is more than any moment of a step if one matrix is larger than all others together. With
    a master copy the FP32 values of what is trained stay, and those of frozen parts go.

    Args:
        own: the model's parameters.
        buffers: bytes of its buffers.
        precision: of the recipe.

    >>> own = (Parameter("norm", (10,)), Parameter("head", (100,)))
    >>> [moment.total_bytes for moment in narrowing(own, 0, "bf16-pure")]  # the head twice: 2·(10 + 100) + 4·100
    [620]
    """
    formats = FORMATS[precision]
    sizes = [(each.num_elements, each.times, each.frozen) for each in own if each.total]
    if formats.stored == "fp32" or not sizes or (formats.master and not any(frozen for *_, frozen in sizes)):
        return ()
    sizes.sort(key=lambda each: each[0])
    narrow_bytes, left = ELEMENT_BYTES[formats.stored], sum(size * times for size, times, _ in sizes)
    done: Amount = 0
    fullest: dict[str, Amount] = {}
    for size, times, frozen in sizes:
        stays = bool(formats.master) and not frozen
        # Of equal ones the first, since each that goes leaves room; the last where all stay.
        narrowed = done + size * (times if stays else 1)
        now = {"parameters": narrow_bytes * narrowed, "temporaries: FP32 values": 4 * left}
        fullest = max(fullest, now, key=lambda parts: sum(parts.values()))
        done, left = done + size * times, left - (0 if stays else size * times)
    return (Moment("making of the model", {"buffers": buffers, **fullest}),)


def draw_pieces(num_values: int) -> list[int]:
    """How many values of a matrix are drawn at once, piece after piece.

    Torch draws 16 at a time, so that pieces of multiples of 16 are together one draw; a shorter rest joins the last.

    >>> draw_pieces(40), draw_pieces(2 * 65_536 + 15), draw_pieces(2 * 65_536 + 16)
    ([40], [65536, 65551], [65536, 65536, 16])
    """
    whole, rest = divmod(num_values, _DRAWN_AT_ONCE)
    sizes = [_DRAWN_AT_ONCE] * whole
    if whole and rest < 16:  # torch's own number
        return [*sizes[:-1], _DRAWN_AT_ONCE + rest]
    return [*sizes, rest]


def largest_draw(num_values: int) -> int:
    """How many values of a matrix its largest piece has.

    >>> [largest_draw(n) == max(draw_pieces(n)) for n in (40, 65_540, 2 * 65_536 + 15, 2 * 65_536 + 16)]
    [True, True, True, True]
    """
    rest = num_values % _DRAWN_AT_ONCE
    return num_values if num_values <= _DRAWN_AT_ONCE else _DRAWN_AT_ONCE + (rest if rest < 16 else 0)


def drawing(own: Sequence[Parameter], buffers: Amount) -> tuple[Moment, ...]:
    """The drawing of first values: all parameters in FP32, and of one piece new values and two masks of a byte each.

    More than a step holds where next to nothing is trained, on few tokens.

    Args:
        own: the model's parameters, in whole numbers.
        buffers: bytes of its buffers.

    >>> drawing((Parameter("norm", (10,)), Parameter("head", (5, 8))), 0)[0].total_bytes  # 4·(10 + 40) + 6·40
    440
    """
    matrices = [each for each in own if each.total and len(each.shape) == 2 and "lora_b" not in each.name]
    if not matrices:
        return ()
    piece = max(largest_draw(each.num_elements) for each in matrices)
    parts = {"parameters": 4 * sum(each.total for each in own), "buffers": buffers, "temporaries": 6 * piece}
    return (Moment("drawing of the first values", parts),)


def _embedding_width(spec: ModelSpec) -> Amount:
    return spec.hidden_size if spec.embedding_size is None else spec.embedding_size
