"""Linear maps of one input as one product: where, and what it makes.

Some kernel sets store such matrices as one (Megatron-LM's `linear_qkv`). The trainer's own keeps them apart and lays
their 16-bit copies side by side where autocast makes them anyway (`trainer.joint`).
"""

from __future__ import annotations

from collections.abc import Mapping

from torchledger import ops
from torchledger.formula.dense import multiplied_by, parameter
from torchledger.formula.precision import FORMATS
from torchledger.formula.tape import Tape
from torchledger.formula.training import adapts
from torchledger.formula.value import Value
from torchledger.ledger import Amount
from torchledger.spec import AttentionSpec

_MAPS = ("query", "key", "value")


def is_joint(part: AttentionSpec, precision: str, *, rank: Amount, targets: tuple[str, ...]) -> bool:
    """Whether the trainer makes queries, keys and values by one product: under autocast, all with a bias or none.

    An adapter beside one of them takes that one apart, and so all.

    Args:
        part: the attention.
        precision: `Recipe.precision`.
        rank: of adapters in these layers; 0 is none.
        targets: which maps have one; empty is all.

    >>> is_joint(AttentionSpec(4), "bf16", rank=0, targets=()), is_joint(AttentionSpec(4), "fp32", rank=0, targets=())
    (True, False)
    """
    biases = {part.query_bias, part.key_bias, part.value_bias}
    is_adapted = rank != 0 and any(adapts(name, targets) for name in _MAPS)
    return FORMATS[precision].is_autocast and len(biases) == 1 and not is_adapted


def joint_linear(tape: Tape, path: str, x: Value, outputs: Mapping[str, Amount], *, bias: bool) -> Value:
    """The maps of these widths as one: x is cast and kept once, and one copy of all weights.

    Args:
        tape: where it is walked.
        path: its module.
        x: [..., inputs].
        outputs: width of each map's result, by its name.
        bias: whether all have one.
    """
    number_format = tape.matmul_format(x)
    x = tape.cast(path, f"{path}: input", x, number_format)
    own = [_side_by_side(tape, path, "weight", {n: (width, x.shape[-1]) for n, width in outputs.items()}, x)]
    if bias:
        own.append(_side_by_side(tape, path, "bias", {n: (width,) for n, width in outputs.items()}, x))
    return multiplied_by(tape, path, x, own, trains=tape.trains)


def _side_by_side(tape: Tape, path: str, name: str, shapes: Mapping[str, tuple[Amount, ...]], x: Value) -> Value:
    """16-bit copies of some parameters in one tensor; each one's gradient is a view of its."""
    trains, number_format = tape.trains, x.number_format
    parts = [parameter(tape, path, f"{n} {name}", shape, number_format, trains=trains) for n, shape in shapes.items()]
    rows: Amount = sum(each.shape[0] for each in parts)
    y = tape.make(f"{path}: {name}", (rows, *parts[0].shape[1:]), number_format, requires_grad=trains)
    pieces = ops.copy(y.num_elements, element_bytes=y.element_bytes, op="concatenate")
    return tape.op(path, "", pieces, y, reads=parts)
