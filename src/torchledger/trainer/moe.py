"""Mixture of experts: a router sends each token to a few of many small MLPs."""

import math

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional

from torchledger.spec import MlpSpec, MoeSpec
from torchledger.trainer.held import held
from torchledger.trainer.linear import Linear
from torchledger.trainer.mlp import Mlp

__all__ = ["Moe", "Router"]


class Router(nn.Module):
    """Chooses `experts_per_token` experts for each token, and how much each counts.

    Scores are softmax (Mixtral, arXiv:2401.04088, section 2.1) or sigmoid (DeepSeek-V3, arXiv:2412.19437, eqs. 12 to
    16) of a linear map, in float32. The bias is added for choosing only; no gradient reaches it, so it is a buffer.

    Attributes:
        balances: whether it tells, in training, how uneven its choice is; `model.build` says so.
        sums: whether this rank's gradient of the weight is a share of a sum over ranks (`held`).
    """

    bias: Tensor | None
    sums: bool = False

    def __init__(self, hidden_size: int, spec: MoeSpec) -> None:
        super().__init__()
        self.spec, self.balances = spec, False
        self.weight = nn.Parameter(torch.empty(spec.num_experts, hidden_size))
        self.register_buffer("bias", torch.zeros(spec.num_experts) if spec.router_bias else None)

    def forward(
        self, x: Float[Tensor, "tokens hidden"]
    ) -> tuple[Float[Tensor, "tokens chosen"], Int[Tensor, "tokens chosen"], Float[Tensor, ""] | None]:
        """Weights of the chosen experts, which they are, and how uneven that is, where it tells."""
        logits = functional.linear(x, held(self.weight, sums=self.sums)).float()
        scores = torch.softmax(logits, dim=-1) if self.spec.scoring == "softmax" else torch.sigmoid(logits)
        preference = scores if self.bias is None else scores + self.bias
        chosen = torch.topk(preference.detach(), self.spec.experts_per_token, dim=-1).indices
        weights = scores.gather(-1, chosen)
        if self.spec.normalize_weights:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        tells = self.balances and self.training and torch.is_grad_enabled()
        return weights, chosen, self._unevenness(scores, chosen) if tells else None

    def _unevenness(
        self, scores: Float[Tensor, "tokens experts"], chosen: Int[Tensor, "tokens chosen"]
    ) -> Float[Tensor, ""]:
        """E·Σ f·P over the experts: f an expert's share of the choices, P its mean probability; 1 where all are even.

        Switch Transformer, arXiv:2101.03961, equations 4 to 6, with f over all k choices of a token; probabilities of
        sigmoid scores are scores over their sum (DeepSeek-V3, arXiv:2412.19437, equation 19).
        """
        if self.spec.scoring == "sigmoid":
            scores = scores / scores.sum(dim=-1, keepdim=True)
        flat, experts = rearrange(chosen, "n k -> (n k)"), self.spec.num_experts
        counts = scores.new_zeros(experts).index_add_(0, flat, scores.new_ones(flat.shape))
        shares = counts * (experts / chosen.numel())
        return (scores.mean(dim=0) * shares).sum()


class Moe(nn.Module):
    """Routed experts, and those that every token visits (DeepSeekMoE, arXiv:2401.06066, eqs. 9 to 11).

    Token copies are sorted by expert, so each expert runs once on its own slice, none is dropped and none padded. On
    fake and meta tensors, which hold no values to route by, the load is taken to be even: tokens·k/E an expert.

    With a capacity every expert runs on as many rows, its factor times the even share (GShard, arXiv:2006.16668,
    section 2.2): copies that find their expert full, in order of the tokens, add nothing to their token; rows that no
    copy takes are filled with the first token, and nobody reads them.

    Args:
        hidden_size: width D of the residual stream.
        mlp: activation and form of the experts.
        spec: how many there are and how they are chosen.
    """

    def __init__(self, hidden_size: int, mlp: MlpSpec, spec: MoeSpec) -> None:
        super().__init__()
        self.num_experts, self.chosen = spec.num_experts, spec.experts_per_token
        self.capacity_factor = spec.capacity_factor
        self.router = Router(hidden_size, spec)
        expert = MlpSpec(spec.intermediate_size, mlp.kind, mlp.activation, mlp.up_bias, mlp.down_bias)
        self.experts = nn.ModuleList(Mlp(hidden_size, expert) for _ in range(spec.num_experts))
        shared = spec.shared_intermediate_size
        self.shared = (
            Mlp(hidden_size, MlpSpec(shared, mlp.kind, mlp.activation, mlp.up_bias, mlp.down_bias)) if shared else None
        )
        self.shared_gate = Linear(hidden_size, 1, bias=False) if shared and spec.shared_gate else None

    def forward(
        self, x: Float[Tensor, "batch length hidden"]
    ) -> Float[Tensor, "batch length hidden"] | tuple[Float[Tensor, "batch length hidden"], Float[Tensor, ""]]:
        """Each token by itself, through its chosen experts; and how uneven the choice is, where the router tells."""
        tokens = rearrange(x, "b t d -> (b t) d")
        weights, chosen, unevenness = self.router(tokens)
        order = torch.argsort(rearrange(chosen, "n k -> (n k)"), stable=True)
        if self.capacity_factor:
            sources, loads, rows, fits = self._within_capacity(chosen, order)
            weights = weights.masked_fill(~fits, 0)
        else:
            sources, loads, rows = order // self.chosen, self._counts(chosen), torch.argsort(order)
        # index_select, not indexing: its backward adds in a fixed order, so that a run repeats bit for bit.
        slices = torch.split(torch.index_select(tokens, 0, sources), loads)
        outputs = torch.cat([expert(part) for expert, part in zip(self.experts, slices, strict=True)])
        outputs = torch.index_select(outputs, 0, rows)
        weights = weights.to(self.router.weight.dtype)  # parameters in 16 bit have a stream in 16 bit
        routed = rearrange(outputs, "(n k) d -> n k d", k=self.chosen) * rearrange(weights, "n k -> n k 1")
        mixed = routed.sum(dim=1)
        if self.shared is not None:
            always = self.shared(tokens)
            if self.shared_gate is not None:
                always = always * torch.sigmoid(self.shared_gate(tokens))
            mixed = mixed + always
        out: Tensor = rearrange(mixed, "(b t) d -> b t d", b=x.shape[0])
        return out if unevenness is None else (out, unevenness)

    def _within_capacity(
        self, chosen: Int[Tensor, "tokens chosen"], order: Int[Tensor, " copies"]
    ) -> tuple[Tensor, list[int], Tensor, Tensor]:
        """Token of each row of each expert, rows of each expert, row of each copy, and whether it got one.

        Args:
            chosen: experts of each token.
            order: the copies sorted by expert.
        """
        flat, experts = rearrange(chosen, "n k -> (n k)"), self.num_experts
        capacity = math.ceil(self.capacity_factor * flat.numel() / experts)
        counts = flat.new_zeros(experts).index_add_(0, flat, torch.ones_like(flat))
        starts = counts.cumsum(0) - counts
        row = rearrange(torch.arange(capacity, device=flat.device), "c -> 1 c")
        at = (rearrange(starts, "e -> e 1") + row).clamp(max=flat.numel() - 1)
        is_taken = row < rearrange(counts, "e -> e 1")
        sources = (torch.index_select(order, 0, at.flatten()) // self.chosen).masked_fill_(~is_taken.flatten(), 0)
        queued = torch.argsort(order) - torch.index_select(starts, 0, flat)
        fits = queued < capacity
        rows = (flat * capacity + queued).masked_fill_(~fits, 0)
        return sources, [capacity] * experts, rows, rearrange(fits, "(n k) -> n k", k=self.chosen)

    def _counts(self, chosen: Int[Tensor, "tokens chosen"]) -> list[int]:
        """Token copies of each expert, in order."""
        if chosen.is_meta or isinstance(chosen, FakeTensor):
            each, rest = divmod(chosen.numel(), self.num_experts)
            return [each + (i < rest) for i in range(self.num_experts)]
        counts: list[int] = torch.bincount(rearrange(chosen, "n k -> (n k)"), minlength=self.num_experts).tolist()
        return counts
