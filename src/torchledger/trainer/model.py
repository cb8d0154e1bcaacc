"""The decoder-only Transformer of a `ModelSpec`: one module tree for the trainer, the tracer and the formulas."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from torchledger.spec import LayerGroup, ModelSpec, check
from torchledger.trainer.attention import Attention, Context, Core
from torchledger.trainer.head import Head
from torchledger.trainer.held import held
from torchledger.trainer.latent import LatentAttention
from torchledger.trainer.linear import Embedding, Linear
from torchledger.trainer.loss import LossInPieces, beside, capped
from torchledger.trainer.mlp import Mlp
from torchledger.trainer.moe import Moe, Router
from torchledger.trainer.norm import Norm
from torchledger.trainer.position import Rotary, alibi_slopes, causal_mask
from torchledger.trainer.prediction import PREDICTION_WEIGHT, Prediction, ahead
from torchledger.trainer.targets import Shares

__all__ = ["Layer", "Recompute", "Transformer", "build"]

AttentionKernel = Literal["math", "fused"]
Recompute = Literal["none", "selective", "full"]


def build(
    spec: ModelSpec,
    *,
    attention: AttentionKernel,
    recompute: Recompute = "none",
    recomputes: Callable[[int], bool] = lambda _: True,
    loss_chunk: int = 0,
    load_balance: float = 0.0,
    sequence_length: int | None = None,
) -> "Transformer":
    """The model of `spec` on the current default device, its parameters without values (`init.initialize` draws them).

    Nothing in it depends on the values of tensors, so it runs on meta and fake tensors as it does on real ones.

    Args:
        spec: the model.
        attention: `math` writes the scores to memory, `fused` is torch's kernel.
        recompute: `full` keeps each layer's input only and runs the layer again in the backward pass (Chen et al.,
            arXiv:1604.06174); `selective` keeps queries, keys and values, and runs the core of attention again
            (Korthikanti et al., arXiv:2205.05198, section 5).
        recomputes: with `full`, whether the layer of an index, from 0, is run again; nothing runs all again.
        loss_chunk: tokens whose logits exist at once in the loss; 0 is all of them.
        load_balance: weight of the load-balancing loss of mixtures, beside the loss that is told.
        sequence_length: longest sequence it will see, for which rotary tables are made; nothing means
            `spec.max_sequence_length`.

    Raises:
        SpecError: a model that cannot be; the fields are named.
    """
    check.require(spec)
    model = Transformer(spec, attention, sequence_length or spec.max_sequence_length)
    model.recomputed = frozenset(filter(recomputes, range(spec.num_layers))) if recompute == "full" else frozenset()
    model.loss = LossInPieces(loss_chunk, spec.final_logit_soft_cap) if loss_chunk else None
    model.load_balance, model.recomputes_prediction = load_balance, recompute == "full"
    for module in model.modules():
        if isinstance(module, Core):
            module.is_recomputed = recompute == "selective"
        elif isinstance(module, Router):
            module.balances = load_balance > 0
    return model


class Layer(nn.Module):
    """Attention and MLP around the residual stream; where their norms stand is `spec.norm.placement`."""

    def __init__(self, spec: ModelSpec, group: LayerGroup, kernel: AttentionKernel) -> None:
        super().__init__()
        norm, D = spec.norm, spec.hidden_size
        self.parallel, self.placement, self.dropout = spec.parallel, norm.placement, spec.dropout
        before, after = norm.placement in {"pre", "sandwich"}, norm.placement != "pre"
        self.attention_norm = Norm(D, norm) if before else None
        self.attention = (LatentAttention if spec.attention.kind == "latent" else Attention)(spec, kernel)
        self.attention_post_norm = Norm(D, norm) if after else None
        self.mlp_norm = Norm(D, norm) if before and not norm.shared else None
        moe = spec.moe if group.is_moe else None
        self.mlp = Mlp(D, spec.mlp) if moe is None else Moe(D, spec.mlp, moe)
        self.mlp_post_norm = Norm(D, norm) if after else None

    def forward(
        self, h: Float[Tensor, "batch length hidden"], context: Context
    ) -> Float[Tensor, "batch length hidden"] | tuple[Float[Tensor, "batch length hidden"], Float[Tensor, ""]]:
        """One layer further along the residual stream; and how uneven experts were chosen, where a router tells."""
        if self.parallel:  # GPT-J: both branches read the same h
            x = _apply(self.attention_norm, h)
            branches: Tensor = h + self._dropped(self.attention(x, context))
            fed, *rest = _with_rest(self.mlp(x if self.mlp_norm is None else self.mlp_norm(h)))
            return _or_alone(branches + self._dropped(fed), rest)
        if self.placement == "residual":
            h = _apply(self.attention_post_norm, h + self._dropped(self.attention(h, context)))
            fed, *rest = _with_rest(self.mlp(h))
            return _or_alone(_apply(self.mlp_post_norm, h + self._dropped(fed)), rest)
        mixed = self.attention(_apply(self.attention_norm, h), context)
        h = h + self._dropped(_apply(self.attention_post_norm, mixed))
        fed, *rest = _with_rest(self.mlp(_apply(self.mlp_norm, h)))
        return _or_alone(h + self._dropped(_apply(self.mlp_post_norm, fed)), rest)

    def _dropped(self, branch: Tensor) -> Tensor:
        """What a branch adds to the stream, in training with some of it set to zero."""
        return functional.dropout(branch, self.dropout, self.training) if self.dropout else branch


class Transformer(nn.Module):
    """Embedding, layers, final norm, head.

    Attributes:
        spec: what it was built from.
        max_length: longest sequence it takes; nothing where positions need no table.
        recomputed: indices of the layers that keep their input only and run again in the backward pass.
        loss: head and loss of so many tokens at a time; nothing where all are at once.
        load_balance: weight of the load-balancing loss of mixtures, in training.
        recomputes_prediction: whether prediction layers run again in the backward pass.
    """

    slopes: Tensor | None
    recomputed: frozenset[int]
    load_balance: float = 0.0
    recomputes_prediction: bool = False

    def __init__(self, spec: ModelSpec, kernel: AttentionKernel, num_positions: int) -> None:
        super().__init__()
        D, V, E, position = spec.hidden_size, spec.vocab_size, spec.embedding_size, spec.position
        self.spec, self.recomputed, self.needs_mask = spec, frozenset(), _needs_mask(spec, kernel)
        self.embedding = Embedding(V, E or D)
        self.embedding_projection = Linear(E, D, bias=False) if E else None
        self.position_embedding = Embedding(spec.num_position_rows, D) if position.kind == "learned" else None
        self.embedding_norm = Norm(D, spec.norm) if spec.embedding_norm else None
        is_rotary = position.kind == "rotary"
        self.rotary = Rotary(spec, position.theta, position.scaling, num_positions) if is_rotary else None
        # Gemma 3: the layers with a window have a base of their own, and no extension.
        local = position.local_theta if is_rotary else None
        self.local_rotary = Rotary(spec, local, {}, num_positions) if local is not None else None
        num_learned = spec.num_position_rows - position.offset
        self.max_length = {"rotary": num_positions, "learned": num_learned}.get(position.kind)
        slopes = alibi_slopes(spec.attention.num_heads) if position.kind == "alibi" else None
        self.register_buffer("slopes", slopes, persistent=False)
        self.windows = tuple(spec.layer(i).window for i in range(spec.num_layers))
        self.layers = nn.ModuleList(Layer(spec, spec.layer(i), kernel) for i in range(spec.num_layers))
        last = spec.layer(spec.num_layers - 1)
        further = (Prediction(spec, Layer(spec, last, kernel)) for _ in range(spec.num_prediction_layers))
        self.prediction = nn.ModuleList(further) if spec.num_prediction_layers else None
        self.final_norm = Norm(D, spec.norm) if spec.norm.final else None
        self.embedding_projection_out = Linear(D, E, bias=False) if E else None
        if spec.tied_embeddings:
            self.head = Head.tied(self.embedding.weight, bias=spec.head_bias)
        else:
            self.head = Head(E or D, V, bias=spec.head_bias)
        self.loss: LossInPieces | None = None

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        targets: Int[Tensor, "batch length"] | None = None,
        documents: Int[Tensor, "batch length"] | None = None,
        shares: Shares | None = None,
    ) -> Float[Tensor, "batch length vocabulary"] | Float[Tensor, ""]:
        """Logits; with `targets` the mean cross-entropy in nats instead (a target of -100 does not count).

        Args:
            tokens: their ids.
            targets: the ids that follow.
            documents: number of each token's document, which alone it then sees; nothing sees all that is before it.
            shares: what each loss, and each beside it, is multiplied by; nothing is one.

        Raises:
            ValueError: if the sequence is longer than the model has positions for.
        """
        h, length, dropout = self._embed(tokens), tokens.shape[1], self.spec.dropout
        h = functional.dropout(h, dropout, self.training) if dropout else h
        contexts = {window: self._context(h, window, length, documents) for window in dict.fromkeys(self.windows)}
        uneven: list[Tensor] = []  # how much each mixture's choice of experts is
        for index, (layer, window) in enumerate(zip(self.layers, self.windows, strict=True)):
            h, *rest = self._run(layer, h, contexts[window], again=index in self.recomputed)
            uneven += rest
        if targets is None:
            return self._logits(h, self.final_norm)
        loss, others = _times(self._loss(h, targets, self.final_norm), 1 if shares is None else shares.main), []
        if self.prediction is not None and self.training and torch.is_grad_enabled():
            further = (1.0,) * len(self.prediction) if shares is None else shares.further
            others.append(self._predict(h, targets, contexts[self.windows[-1]], uneven, further))
        if uneven:
            others.append(_sum(uneven, self.load_balance * (1 if shares is None else shares.tokens)))
        return beside(loss, others)

    @property
    def has_losses_beside(self) -> bool:
        """Whether training has further losses beside the one that is told."""
        return self.prediction is not None or self.load_balance > 0

    def _run(self, layer: nn.Module, h: Tensor, context: Context, *, again: bool) -> tuple[Tensor, ...]:
        if not again or not torch.is_grad_enabled():
            return _with_rest(layer(h, context))
        # Only dropout would draw random numbers again in the backward pass.
        replay = self.training and self.spec.has_dropout
        return _with_rest(checkpoint(layer, h, context, use_reentrant=False, preserve_rng_state=replay))

    def _logits(self, h: Tensor, norm: nn.Module | None) -> Float[Tensor, "batch length vocabulary"]:
        logits: Tensor = self.head(_apply(self.embedding_projection_out, _apply(norm, h)))
        return capped(logits, self.spec.final_logit_soft_cap)

    def _loss(self, h: Tensor, targets: Tensor, norm: nn.Module | None) -> Float[Tensor, ""]:
        if self.loss is None:
            whole = functional.cross_entropy(self._logits(h, norm).float().flatten(0, 1), targets.flatten())
            return held(whole)  # of a loss in shares each rank has all
        in_pieces: Tensor = self.head(_apply(self.embedding_projection_out, _apply(norm, h)), targets, self.loss)
        return in_pieces

    def _predict(
        self, h: Tensor, targets: Tensor, context: Context, uneven: list[Tensor], shares: tuple[float, ...]
    ) -> Float[Tensor, ""]:
        """The weighted loss of the prediction layers, each of which reads what the one before it made."""
        assert self.prediction is not None
        losses = []
        for depth, (module, share) in enumerate(zip(self.prediction, shares, strict=True), 1):
            assert isinstance(module, Prediction)
            known = self._embed(ahead(targets, depth - 1).clamp(min=0))
            h, *rest = self._run(module.layer, module(h, known), context, again=self.recomputes_prediction)
            uneven += rest
            losses.append(_times(self._loss(h, ahead(targets, depth), module.final_norm), share))
        return _sum(losses, PREDICTION_WEIGHT / len(losses))

    def _embed(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length hidden"]:
        length, spec = tokens.shape[1], self.spec
        if self.max_length is not None and length > self.max_length:
            raise ValueError(f"{spec.name} has {self.max_length:,} positions, too few for {length:,} tokens")
        h: Tensor = _apply(self.embedding_projection, self.embedding(tokens))
        if spec.embedding_scale:
            h = h * math.sqrt(spec.hidden_size)
        if self.position_embedding is not None:
            positions = torch.arange(length, device=tokens.device)
            h = h + self.position_embedding(positions + spec.position.offset if spec.position.offset else positions)
        return _apply(self.embedding_norm, h)

    def _context(
        self, h: Float[Tensor, "batch tokens hidden"], window: int, length: int, documents: Tensor | None
    ) -> Context:
        """Mask and rotary tables of the layers with this window, made once for all of them."""
        mask = None
        if self.needs_mask or window or documents is not None:
            mask = causal_mask(length, window, self.slopes, h, _matmul_dtype(h), documents)
        rotary = self.local_rotary if window and self.local_rotary is not None else self.rotary
        return Context(mask, None if rotary is None else rotary(length), window)


def _with_rest(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def _or_alone(h: Tensor, rest: list[Tensor]) -> Tensor | tuple[Tensor, Tensor]:
    return (h, rest[0]) if rest else h


def _times(loss: Tensor, share: float) -> Tensor:
    return loss if share == 1 else loss * share


def _sum(losses: list[Tensor], weight: float) -> Tensor:
    return (losses[0] if len(losses) == 1 else torch.stack(losses).sum()) * weight


def _needs_mask(spec: ModelSpec, kernel: AttentionKernel) -> bool:
    """Whether even layers without a window need a mask tensor: torch's kernel knows plain causality by itself."""
    return kernel == "math" or spec.attention.logit_soft_cap is not None or spec.position.kind == "alibi"


def _matmul_dtype(x: Tensor) -> torch.dtype:
    """Format in which a matmul of `x` gives its result, here and now."""
    device = x.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return x.dtype


def _apply(module: nn.Module | None, x: Tensor) -> Tensor:
    """`module(x)`, or `x` where the spec has no such module."""
    if module is None:
        return x
    out: Tensor = module(x)
    return out
