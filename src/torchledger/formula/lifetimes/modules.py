"""`Module`: a place in the model, its parameters, linear maps and norms (`trainer.linear`, `.norm`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from torchledger.formula.lifetimes.autograd import Parameter
from torchledger.formula.lifetimes.memory import Block, Memory
from torchledger.formula.lifetimes.narrow import narrow_linear
from torchledger.formula.lifetimes.operations import (
    add,
    joint_linear,
    layer_norm,
    linear,
    mean,
    mul,
    rsqrt,
    scale,
    shifted,
    square,
)
from torchledger.formula.lifetimes.tensors import Tensor
from torchledger.formula.lifetimes.views import cast
from torchledger.formula.narrow import runs_narrow
from torchledger.formula.precision import FORMATS
from torchledger.formula.training import adapts
from torchledger.spec import ModelSpec, NormSpec, Recipe


@dataclass(slots=True)
class Weights:
    """Parameters by name, made when they are first asked for; their bytes are counted by who makes the model.

    Attributes:
        memory: what is counted in.
        number_format: that they are stored in.
        found: those that were asked for.
        left: gradients of layers that nobody walked.
    """

    memory: Memory
    number_format: str
    found: dict[str, Parameter] = field(default_factory=dict)
    left: list[Block] = field(default_factory=list)

    def get(self, name: str, *shape: int, trained: bool) -> Parameter:
        """The parameter of that name."""
        if name not in self.found:
            self.found[name] = Parameter(self.memory, name, shape, self.number_format, trained=trained)
        return self.found[name]

    def of_layer(self, index: int) -> list[Parameter]:
        """Those of a layer."""
        return [each for name, each in self.found.items() if name.startswith(f"layers.{index}.")]

    def repeat(self, own: Sequence[Parameter], index: int, count: int) -> bool:
        """Have the parameters `own` of layer `index` for as many layers after it; whether they were there before."""
        start = len(f"layers.{index}.")
        for layer in range(index + 1, index + 1 + count):
            for each in own:
                name = f"layers.{layer}.{each.name[start:]}"
                if name in self.found:
                    return True
                self.get(name, *each.tensor.shape, trained=each.tensor.leaf is not None)
        return False


@dataclass(frozen=True, slots=True)
class Module:
    """Where in the model something runs, and what of it is trained.

    Attributes:
        weights: of the whole model.
        spec: the model.
        recipe: how it is trained.
        path: of this module.
        trained: whether its own parameters are.
        rank: of adapters beside its linear maps; 0 is none.
    """

    weights: Weights
    spec: ModelSpec
    recipe: Recipe
    path: str
    trained: bool
    rank: int = 0

    @property
    def memory(self) -> Memory:
        """What is counted in."""
        return self.weights.memory

    def inside(self, name: str) -> Module:
        """A module in this one."""
        return replace(self, path=f"{self.path}.{name}" if self.path else name)

    def parameter(self, name: str, *shape: int) -> Parameter:
        """One of its own parameters."""
        return self.weights.get(f"{self.path}.{name}", *shape, trained=self.trained)

    def linear(self, name: str, x: Tensor, outputs: int, *, bias: bool = False, inner: bool = True) -> Tensor:
        """A linear map in this module, and its adapter."""
        own = self.inside(name)
        own.memory.place = own.path
        weight = own.parameter("weight", outputs, x.shape[-1])
        own_bias = own.parameter("bias", outputs) if bias else None
        if inner and FORMATS[self.recipe.precision].narrow and runs_narrow(x.shape[-1], outputs):
            y = narrow_linear(x, weight.tensor, None if own_bias is None else own_bias.tensor)
        else:
            y = linear(x, weight, own_bias)
        if not self.rank or not inner or not adapts(name, self.recipe.lora_targets):
            return y
        beside = own.adapter(x, outputs)
        return add(y, scale(beside))

    def joint_linear(self, name: str, x: Tensor, outputs: Mapping[str, int], *, bias: bool) -> Tensor:
        """Linear maps of this module as one product, in the place of that name."""
        own = [self.inside(each) for each in outputs]
        widths = outputs.values()
        self.memory.place = self.inside(name).path
        weights = [each.parameter("weight", width, x.shape[-1]) for each, width in zip(own, widths, strict=True)]
        biases = [each.parameter("bias", width) for each, width in zip(own, widths, strict=True)] if bias else []
        return joint_linear(x, weights, biases)

    def adapter(self, x: Tensor, outputs: int) -> Tensor:
        """B A x with both trained."""
        get = self.weights.get
        low = linear(x, get(f"{self.path}.lora_a.weight", self.rank, x.shape[-1], trained=True))
        return linear(low, get(f"{self.path}.lora_b.weight", outputs, self.rank, trained=True))

    def norm(self, name: str, x: Tensor, spec: NormSpec) -> Tensor:
        """A norm in this module."""
        own, size, y = self.inside(name), x.shape[-1], x
        own.memory.place = own.path
        weight: Tensor | None = None
        bias: Tensor | None = None
        if spec.affine:
            weight = own.parameter("weight", size).tensor
            y = cast(x, weight.number_format)
            weight = shifted(weight) if spec.unit_offset else weight
            if spec.bias and spec.kind == "layer":
                bias = own.parameter("bias", size).tensor
        if spec.kind == "layer":
            return layer_norm(y, weight, bias)
        return _rms_norm(y, weight)


def _rms_norm(x: Tensor, weight: Tensor | None) -> Tensor:
    """Single operations in FP32 (`rms_norm_composite` in aten/src/ATen/native/layer_norm.cpp)."""
    before = x.number_format
    wide = cast(x, "fp32")
    inverse = _inverse_root(wide)
    y = mul(wide, inverse)
    if weight is not None:
        y = mul(y, weight)
    del wide
    return cast(y, before)


def _inverse_root(x: Tensor) -> Tensor:
    squares = square(x)
    means = mean(squares)
    return rsqrt(means)
