"""What a precision means, name by name: formats of weights, activations, products, gradients and optimizer state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats of one precision.

    Attributes:
        name: the precision they belong to.
        stored: of the parameters that the layers read, and of the residual stream.
        value: of a matmul's operands and result; another one than `stored` is cast there by autocast, every time.
        product: what the multiplications of a matmul run in.
        layers: the same for the linear layers of attention and MLP.
        gradient: of the parameters' gradients.
        master: of a second copy that the optimizer updates; empty where there is none.
        moment: of the optimizer's running averages.
    """

    name: str
    stored: str
    value: str
    product: str
    layers: str
    gradient: str
    master: str
    moment: str

    @property
    def is_autocast(self) -> bool:
        """Whether torch.autocast casts operands at every matmul."""
        return self.value != self.stored

    @property
    def narrow(self) -> str:
        """The format that operands of the layers' linear maps are cast to, narrower than their own; empty if none."""
        return self.layers if self.layers in NARROW else ""


#: Formats of quantised operands.
NARROW = frozenset({"fp8", "mxfp8", "nvfp4"})


def _of(stored: str, value: str, product: str, *, layers: str = "", master: str = "", moment: str = "fp32") -> Formats:
    return Formats("", stored, value, product, layers or product, stored, master, moment)


#: Precision -> its formats. Gradients are in the format of their parameters, as autograd makes them.
FORMATS: Mapping[str, Formats] = {
    "fp32": _of("fp32", "fp32", "fp32"),
    "tf32": _of("fp32", "fp32", "tf32"),
    "bf16": _of("fp32", "bf16", "bf16"),
    "fp16": _of("fp32", "fp16", "fp16"),
    "bf16-master": _of("bf16", "bf16", "bf16", master="fp32"),
    "fp16-master": _of("fp16", "fp16", "fp16", master="fp32"),
    "bf16-moments": _of("bf16", "bf16", "bf16"),
    "bf16-pure": _of("bf16", "bf16", "bf16", moment="bf16"),
    "fp8": _of("bf16", "bf16", "bf16", layers="fp8", master="fp32"),
    "mxfp8": _of("bf16", "bf16", "bf16", layers="mxfp8", master="fp32"),
    "nvfp4": _of("bf16", "bf16", "bf16", layers="nvfp4", master="fp32"),
}
