"""Last norm, head and loss as the trainer's allocate: of all tokens at once, or in pieces (`trainer.loss`)."""

from __future__ import annotations

from torchledger.formula.lifetimes.autograd import Gradients, Parameter, begun, ended
from torchledger.formula.lifetimes.modules import Module
from torchledger.formula.lifetimes.operations import like, linear, plain, scale
from torchledger.formula.lifetimes.tensors import Tensor, made
from torchledger.formula.lifetimes.views import cast, first, reshape
from torchledger.formula.training import trains


def loss_of(head: Module, h: Tensor, targets: Tensor, norm: str, owner: Module | None = None) -> Tensor:
    """Mean cross-entropy of what the head makes of the stream.

    Args:
        head: whose parameters are the head's.
        h: the stream.
        targets: of every token.
        norm: name of the norm before it.
        owner: what the norm belongs to, where it is not the model.
    """
    owner = owner or head
    if head.recipe.loss_chunk:
        return _in_pieces(head, _last(head, owner, h, norm))
    return _cross_entropy(cast(_logits(head, owner, h, norm), "fp32"), targets)


def _last(head: Module, owner: Module, h: Tensor, norm: str) -> Tensor:
    spec = head.spec
    normed = owner.norm(norm, h, spec.norm) if spec.norm.final else h
    return (
        head.linear("embedding_projection_out", normed, spec.embedding_size, inner=False)
        if spec.embedding_size
        else normed
    )


def _logits(head: Module, owner: Module, h: Tensor, norm: str) -> Tensor:
    logits = _mapped(head, _last(head, owner, h, norm))
    if head.spec.final_logit_soft_cap is not None:
        logits = scale(plain(scale(logits), keeps="result"))
    return logits


def _mapped(head: Module, x: Tensor) -> Tensor:
    head.memory.place = "head"
    return linear(x, *_parameters(head, x.shape[-1]))


def _parameters(head: Module, width: int) -> tuple[Parameter, Parameter | None]:
    """Weight and bias; a tied head is the embedding, and its bias is trained with it."""
    spec, get = head.spec, head.weights.get
    tied = spec.tied_embeddings
    trained = trains(head.recipe, "embedding") if tied else head.trained
    weight = get("embedding.weight" if tied else "head.weight", spec.vocab_size, width, trained=trained)
    return weight, get("head.bias", spec.vocab_size, trained=trained) if spec.head_bias else None


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    flat = reshape(logits, logits.shape[0] * logits.shape[1], logits.shape[2])
    flat.memory.place = "loss"
    node = begun((flat,))
    logs = like(flat)
    ended(node, lambda _, g, __: [like(first(g))], logs, keeps=(logs,))
    shape = logs.shape
    node = begun((logs,), logs, targets)
    loss, count = made(flat.memory, (), "fp32"), made(flat.memory, (), "fp32")

    def back(_: list[Tensor | None], g: Gradients, __: list[Tensor]) -> Gradients:
        return [made(first(g).memory, shape, "fp32")]

    ended(node, back, loss, count, keeps=(count,))
    return loss


def _in_pieces(head: Module, x: Tensor) -> Tensor:
    """Each piece's gradients with its loss, which wait for the backward pass and go on as they are."""
    memory = head.memory
    memory.place = "loss"
    weight, bias = _parameters(head, x.shape[-1])
    flat = reshape(x, x.shape[0] * x.shape[1], x.shape[2])
    operands = (flat, weight.tensor, None if bias is None else bias.tensor)
    needs = [each is not None and each.needs_gradient for each in operands]
    node = begun(operands)
    loss, kept = _of_pieces(head, flat, weight, bias, needs)
    ended(node, lambda kept, _, __: [kept[0], kept[1], kept[2]], loss)
    if node is not None:
        for each in kept:
            if each is not None:
                each.block.becomes("activations")
        node.kept = list(kept)
    return loss


def _of_pieces(  # what a loss in pieces is made of
    head: Module, x: Tensor, weight: Parameter, bias: Parameter | None, needs: list[bool]
) -> tuple[Tensor, list[Tensor | None]]:
    memory, rows, width = head.memory, x.shape[0], x.shape[1]
    number_format = "bf16" if memory.casts is not None else x.number_format
    vocabulary = head.spec.vocab_size
    w = cast(weight.tensor.detached(), number_format)
    b = None if bias is None else cast(bias.tensor.detached(), number_format)
    which = made(memory, (rows,), "bool")
    number = made(memory, (), "int64")
    del which
    count = made(memory, (), "int64")
    del number
    d_x = made(memory, x.shape, x.number_format) if needs[0] else None
    d_weight: Tensor | None = None
    d_bias: Tensor | None = None
    losses = []
    chunk = head.recipe.loss_chunk
    for start in range(0, rows, chunk):
        size = min(chunk, rows - start)
        part = cast(Tensor(x.block, (size, width), x.strides, x.number_format, is_view=True), number_format)
        loss, d_logits = _piece(head, part, size, differentiated=any(needs))
        losses.append(loss)
        if needs[0]:
            product = made(memory, (size, width), number_format)
            del product
        if needs[1]:
            more = _added(made(memory, (vocabulary, width), number_format), weight.tensor.number_format)
            d_weight = more if d_weight is None else d_weight
            del more
        if needs[2] and bias is not None:
            more = _added(made(memory, (vocabulary,), number_format), bias.tensor.number_format)
            d_bias = more if d_bias is None else d_bias
            del more
        del d_logits
    all_losses = made(memory, (len(losses),), "fp32")
    told = made(memory, (), "fp32")
    del all_losses, w, b, count
    return told, [d_x, d_weight, d_bias]


def _added(product: Tensor, number_format: str) -> Tensor:
    return cast(product, number_format)


def _piece(head: Module, x: Tensor, rows: int, *, differentiated: bool) -> tuple[Tensor, Tensor]:
    memory, capped = head.memory, head.spec.final_logit_soft_cap is not None
    logits = made(memory, (rows, head.spec.vocab_size), x.number_format)
    inner: Tensor | None = None
    if capped:
        quotients = like(logits)
        inner = like(logits)
        del quotients
        logits = like(inner)
    logs = _log_probabilities(logits)
    whole, weights = made(memory, (), "fp32"), made(memory, (), "fp32")
    del weights
    loss = made(memory, (), "fp32")
    del whole
    if not differentiated:
        return loss, logs
    counts = made(memory, (rows,), "bool")
    places = made(memory, (rows,), "int64")
    wide = made(memory, (rows, 1), "fp32")
    negative = like(wide)
    del wide, places, negative
    shares = made(memory, (rows, 1), "fp32")
    del shares
    if inner is not None:
        _slopes(inner)
    d_logits = cast(logs, x.number_format)
    del counts
    return loss, d_logits


def _log_probabilities(logits: Tensor) -> Tensor:
    wide = cast(logits, "fp32")
    return like(wide)


def _slopes(inner: Tensor) -> None:
    wide = cast(inner, "fp32")
    squares = like(wide)
    if wide is not inner:
        del wide
    like(squares)
