"""What the optimizer's phase runs, and the bytes of its state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchledger import ops
from torchledger.formula.parameters import Parameter
from torchledger.formula.precision import FORMATS, Formats
from torchledger.formula.value import ELEMENT_BYTES
from torchledger.ledger import Amount, Line
from torchledger.ops import Piece
from torchledger.spec import OptimizerSpec

#: Elements that share one FP32 scale of an 8-bit moment, and the smallest tensor whose moments are in 8 bit at all.
#: Source: arXiv:2110.02861, section 2; `min_8bit_size` of github.com/bitsandbytes-foundation/bitsandbytes.
BLOCK_8BIT, SMALLEST_8BIT = 2048, 4096
#: Elements that the trainer widens at once: averages of a large embedding in FP32 would be more than what is saved.
CHUNK_8BIT = 8192 * BLOCK_8BIT


def trained(parameters: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """Those that the optimizer moves, each once: no buffers, nothing frozen, a tied head at its embedding only."""
    return tuple(each for each in parameters if each.trainable and each.tied_to is None and not each.frozen)


def is_decayed(parameter: Parameter) -> bool:
    """Whether weight decay acts on it: on matrices, not on norms, biases or embeddings of positions."""
    return len(parameter.shape) >= 2 and not parameter.name.startswith("position_embedding")


def is_orthogonalized(parameter: Parameter) -> bool:
    """Whether Muon moves it: matrices of layers; tables, head and vectors are AdamW's (arXiv:2502.16982, 2.2)."""
    return len(parameter.shape) >= 2 and parameter.name.startswith(("layers.", "prediction."))


def optimizer_lines(parameters: Sequence[Parameter], spec: OptimizerSpec, precision: str = "fp32") -> Iterator[Line]:
    """Unscaling (FP16), clipping, then the step on the parameters that decay and on those that do not.

    Args:
        parameters: the model's; those that are trained are moved.
        spec: the optimizer.
        precision: `Recipe.precision`, which decides the bytes that the step moves.

    >>> lines = list(optimizer_lines([Parameter("head.weight", (4, 8))], OptimizerSpec()))
    >>> [(line.op, line.work.flops_full) for line in lines]  # 3·32 - 1 + 1 + 2 - 1; 11·32
    [('clip_grad_norm', 98), ('adamw', 352)]
    """
    moved, formats = trained(parameters), FORMATS[precision]
    elements, tensors = sum(each.total for each in moved), sum(each.times for each in moved)
    gradient = ELEMENT_BYTES[formats.gradient]
    found: list[Piece] = []
    if formats.product == "fp16" and elements != 0:
        found += (*ops.unscale(elements, element_bytes=gradient), *ops.update_scale())
    if spec.gradient_clip > 0:
        found += ops.clip_grad_norm(elements, tensors, element_bytes=gradient)
    for decays in (True, False):
        group = [each for each in moved if is_decayed(each) == decays]
        found += _step(group, spec, formats, decayed=decays and spec.weight_decay > 0)
    for piece in found:
        yield piece.line("", phase="optimizer", number_format="bf16" if piece.kind == "linalg" else "fp32")


def _step(group: Sequence[Parameter], spec: OptimizerSpec, formats: Formats, *, decayed: bool) -> Iterator[Piece]:
    elements: Amount = sum(each.total for each in group)
    if elements == 0:
        return
    if spec.kind == "muon":
        matrices = [each for each in group if is_orthogonalized(each)]
        yield from _muon(matrices, formats, decayed=decayed)
        elements = elements - sum(each.total for each in matrices)
        if elements == 0:
            return
    if spec.kind == "adafactor":
        yield from _adafactor(group, formats, decayed=decayed)
    elif spec.kind == "lion":
        yield from _as_stored(ops.lion(elements, weight_decay=decayed), elements, formats, moments=1)
    elif spec.kind == "adamw-8bit":
        pieces = ops.adamw_8bit(elements, weight_decay=decayed)
        yield from _as_stored(pieces, elements, formats, moments=2, moment_bytes=1 + 4 / BLOCK_8BIT)
    elif spec.kind == "sgd":
        momentum = spec.momentum > 0
        pieces = ops.sgd(elements, momentum=momentum, weight_decay=decayed, implementation=spec.implementation)
        yield from _as_stored(pieces, elements, formats, moments=int(momentum))
    else:
        implementation = spec.implementation if spec.kind == "adamw" else "fused"
        pieces = ops.adamw(elements, weight_decay=decayed, implementation=implementation)
        yield from _as_stored(pieces, elements, formats, moments=2)


def _muon(matrices: Sequence[Parameter], formats: Formats, *, decayed: bool) -> Iterator[Piece]:
    elements: Amount = sum(each.total for each in matrices)
    if elements == 0:
        return
    yield from _as_stored(ops.muon(elements, weight_decay=decayed), elements, formats, moments=1, more=2)
    for each in matrices:
        yield from ops.newton_schulz(*sorted(each.shape[-2:]), times=each.times)


def _adafactor(group: Sequence[Parameter], formats: Formats, *, decayed: bool) -> Iterator[Piece]:
    """Matrices with a mean of squares for each row and column, vectors with one for each element."""
    size = ELEMENT_BYTES[formats.master or formats.stored]
    for each in group:
        rows, columns = (each.shape[-2], each.shape[-1]) if len(each.shape) >= 2 else (1, each.shape[-1])
        yield from ops.adafactor(rows * each.times, columns, weight_decay=decayed, element_bytes=size)


def _as_stored(
    pieces: Sequence[Piece],
    elements: Amount,
    formats: Formats,
    *,
    moments: int,
    moment_bytes: Amount = None,
    more: Amount = 0,
) -> Sequence[Piece]:
    """The pieces with the bytes of one kernel that reads and writes each tensor in its own format.

    Where all are FP32 the pieces' own bytes stand: an implementation of several kernels moves more. With a master copy
    that is what is read and written, and the parameter itself is written besides.
    """
    own = ELEMENT_BYTES[formats.stored]
    if formats.stored == formats.gradient == formats.moment == "fp32":
        return pieces
    moment = ELEMENT_BYTES[formats.moment] if moment_bytes is None else moment_bytes
    weight = ELEMENT_BYTES[formats.master] if formats.master else own
    read = ELEMENT_BYTES[formats.gradient] + weight + moments * moment + more * own
    written = weight + moments * moment + (own if formats.master else 0) + more * own
    return ops.moved(pieces, bytes_read=_whole(read * elements), bytes_written=_whole(written * elements))


def state_bytes(parameters: Sequence[Parameter], spec: OptimizerSpec, precision: str = "fp32") -> Amount:
    """Bytes that the optimizer holds between steps, a master copy apart.

    AdamW: two moments, and a step count of 4 bytes a tensor. SGD and Lion: one moment; Muon: one of matrices of layers,
    AdamW's two of the rest. Adafactor: a mean of squares a row and a column of a matrix, of vectors one an element,
    FP32, and a step count. AdamW in 8 bit: two moments of a byte and a scale a block, and a step count; small tensors
    have FP32 ones.

    >>> state_bytes([Parameter("head.weight", (4, 8))], OptimizerSpec())  # 2·4·32 + 4
    260
    >>> state_bytes([Parameter("head.weight", (4, 8))], OptimizerSpec("adafactor"))  # 4·(4 + 8) + 4
    52
    """
    moment = ELEMENT_BYTES[FORMATS[precision].moment]
    if spec.kind == "sgd" and spec.momentum == 0:
        return 0
    return sum((each.times * _state(each, spec, moment) for each in trained(parameters)), start=0)


def _state(parameter: Parameter, spec: OptimizerSpec, moment: Amount) -> Amount:
    elements = parameter.num_elements
    if spec.kind in {"sgd", "lion"} or (spec.kind == "muon" and is_orthogonalized(parameter)):
        return moment * elements
    if spec.kind == "adafactor":
        is_matrix = len(parameter.shape) >= 2
        return 4 * (parameter.shape[-2] + parameter.shape[-1] if is_matrix else elements) + 4
    if spec.kind == "adamw-8bit":
        if elements < SMALLEST_8BIT:
            return 8 * elements + 4
        return 2 * (elements + 4 * -(-elements // BLOCK_8BIT)) + 4
    return 2 * moment * elements + 4


def temporary_bytes(parameters: Sequence[Parameter], spec: OptimizerSpec, precision: str = "fp32") -> Amount:
    """The most that the optimizer's step holds for itself, a few numbers apart.

    AdamW over lists of tensors: a root of every second moment. SGD with weight decay: over lists every decayed
    gradient, in a loop the largest. What runs one parameter at a time: of the largest, in FP32, Lion's direction,
    Adafactor's update; of 8-bit AdamW both averages and a root or the codes; of Muon an update in FP32, X and the next
    X in BF16 and two squares of the shorter side. Where formats are mixed, besides, the gradient in FP32, the parameter
    where there is no master copy, and moments kept in 16 bit.

    >>> temporary_bytes([Parameter("head.weight", (4, 8))], OptimizerSpec("lion"))  # 4·32
    128
    """
    moved, formats = trained(parameters), FORMATS[precision]
    mixed = formats.stored != "fp32" and (bool(formats.master) or formats.stored != formats.moment)
    if spec.kind == "adamw" and spec.implementation == "foreach" and not mixed:
        return ELEMENT_BYTES[formats.stored] * sum(each.total for each in moved)
    if spec.kind == "sgd" and not mixed and spec.weight_decay > 0:
        added = [each for each in moved if is_decayed(each)]  # the gradient and the decay: a tensor of its own
        own = ELEMENT_BYTES[formats.stored]
        if spec.implementation == "foreach":
            return own * sum(each.total for each in added)
        if spec.implementation == "loop" or formats.stored != "fp32":  # which no fused kernel moves, see the trainer's
            return own * max((each.num_elements for each in added), default=0)
    one_by_one = mixed or spec.kind not in {"adamw", "sgd"}
    return max((_temporary(each, spec, formats) for each in moved), default=0) if one_by_one else 0


def _temporary(parameter: Parameter, spec: OptimizerSpec, formats: Formats) -> Amount:
    """Bytes beside one parameter while it is updated."""
    n = parameter.num_elements
    moments = {"adamw": 2, "lion": 1, "sgd": int(spec.momentum > 0), "adafactor": 0, "adamw-8bit": 0}
    number = moments.get(spec.kind, 1 if is_orthogonalized(parameter) else 2)
    narrow = formats.stored != "fp32"
    widened = 4 * n * (narrow + (narrow and not formats.master) + number * (formats.moment != "fp32"))
    if spec.kind == "muon" and is_orthogonalized(parameter):
        return widened + (4 + 2 + 2) * n + 2 * 2 * min(parameter.shape) ** 2
    if spec.kind in {"lion", "adafactor"}:
        return widened + 4 * n
    if spec.kind == "adamw-8bit":
        return widened + (4 * n if n < SMALLEST_8BIT else 3 * 4 * min(n, CHUNK_8BIT))
    if spec.kind in {"adamw", "muon"} and spec.implementation != "fused":
        return widened + 4 * n
    return widened


def master_bytes(parameters: Sequence[Parameter], precision: str) -> Amount:
    """Bytes of the copy that the optimizer updates, of trained parameters only; 0 where there is none.

    >>> master_bytes([Parameter("head.weight", (4, 8))], "bf16-master")
    128
    """
    master = FORMATS[precision].master
    if not master:
        return 0
    return ELEMENT_BYTES[master] * sum(each.total for each in trained(parameters))


def _whole(amount: Amount) -> Amount:
    return int(amount) if isinstance(amount, float) else amount
