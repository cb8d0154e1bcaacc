"""The trainer's layers as they allocate: the same calls in the same order, each name held as long (`trainer.model`)."""

from __future__ import annotations

from torchledger.formula.lifetimes.attending import Context, attention, latent_attention
from torchledger.formula.lifetimes.experts import mixture
from torchledger.formula.lifetimes.feeding import mlp
from torchledger.formula.lifetimes.modules import Module
from torchledger.formula.lifetimes.operations import add, dropped
from torchledger.formula.lifetimes.tensors import Tensor


def layer(module: Module, h: Tensor, context: Context, *, is_moe: bool) -> tuple[Tensor, ...]:
    """One layer further along the stream; and how uneven experts were chosen, where a router tells."""
    spec, norm = module.spec, module.spec.norm
    before, after = norm.placement in {"pre", "sandwich"}, norm.placement != "pre"
    mixes = latent_attention if spec.attention.kind == "latent" else attention

    def normed(name: str, x: Tensor, *, stands: bool) -> Tensor:
        return module.norm(name, x, norm) if stands else x

    def feeds(x: Tensor) -> tuple[Tensor, ...]:
        inner = module.inside("mlp")
        if is_moe and spec.moe is not None:
            return mixture(inner, x)
        return (mlp(inner, x, spec.mlp),)

    attending = module.inside("attention")
    if spec.parallel:
        x = normed("attention_norm", h, stands=before)
        branches = add(h, _dropped(module, mixes(attending, x, context)))
        fed, *rest = feeds(x if norm.shared or not before else module.norm("mlp_norm", h, norm))
        return (add(branches, _dropped(module, fed)), *rest)
    if norm.placement == "residual":
        h = module.norm("attention_post_norm", add(h, _dropped(module, mixes(attending, h, context))), norm)
        fed, *rest = feeds(h)
        return (module.norm("mlp_post_norm", add(h, _dropped(module, fed)), norm), *rest)
    mixed = mixes(attending, normed("attention_norm", h, stands=before), context)
    h = add(h, _dropped(module, normed("attention_post_norm", mixed, stands=after)))
    fed, *rest = feeds(normed("mlp_norm", h, stands=before))
    return (add(h, _dropped(module, normed("mlp_post_norm", fed, stands=after))), *rest)


def _dropped(module: Module, x: Tensor) -> Tensor:
    module.memory.place = module.path
    return dropped(x) if module.spec.dropout else x
