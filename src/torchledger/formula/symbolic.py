"""The same arithmetic with letters for sizes: FLOPs of a phase and parameters as polynomials.

B batch, T sequence, L layers, D hidden size, H heads, K key-value heads, d head size, F inner width of the MLP, V
vocabulary. A size stays a number where no polynomial in it exists: L with a mixture of experts (its layers are told
apart one by one), d where only a part of a head is rotated, H·d for latent attention's heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from torchledger.formula.count import count
from torchledger.formula.parameters import num_parameters
from torchledger.ledger import Convention
from torchledger.spec import ModelSpec, Recipe


class SymbolicError(ValueError):
    """No polynomial can be given: sympy is missing, or the convention is not polynomial in the model's sizes."""


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A model's cost in letters.

    Attributes:
        flops: phase -> polynomial.
        parameters: number of parameters.
        values: letter -> its value in the model it was made from.
        convention: how FLOPs were counted.
    """

    flops: Mapping[str, Any]
    parameters: Any
    values: Mapping[Any, int]
    convention: Convention

    @property
    def total(self) -> Any:
        """FLOPs of the whole step."""
        return sum(self.flops.values())

    def evaluated(self, phase: str) -> int:
        """The phase's FLOPs with the model's own numbers put in."""
        return int(self.flops[phase].subs(self.values))


def polynomial(spec: ModelSpec, recipe: Recipe | None = None, *, convention: Convention | None = None) -> Polynomial:
    """FLOPs per phase and the number of parameters of `spec` as polynomials in its sizes.

    Args:
        spec: the model; its numbers are kept as `values`.
        recipe: how it is trained; batch and sequence become letters.
        convention: how FLOPs are read; nothing is model FLOPs.

    Raises:
        SymbolicError: sympy is not installed; or the model has a window and the convention is not contractions over
            the full square, which is all that does not depend on it.
    """
    sympy = _sympy()
    convention = convention or Convention()
    recipe = recipe or Recipe()
    if spec.attention.window_pattern:
        if convention.attention == "exact" or convention.operations == "all":
            raise SymbolicError(
                f"{spec.name} has attention windows: exact attention and single operations are no polynomial in T "
                "under a window; use attention='full' or 'executed' and operations='contractions'"
            )
        spec = replace(spec, attention=replace(spec.attention, window_pattern=()))
    letters: dict[str, Any] = {}

    def letter(name: str, value: int) -> Any:
        letters[name] = (sympy.Symbol(name, positive=True, integer=True), value)
        return letters[name][0]

    B, T = letter("B", recipe.micro_batch_size), letter("T", recipe.sequence_length)
    lettered = _lettered(spec, letter)
    ledger = count(lettered, replace(recipe, batch_size=B, sequence_length=T, accumulation_steps=1))
    flops = {
        phase: sympy.expand(lines.under(replace(convention, recompute=True)).flops)
        for phase, lines in ledger.by("phase").items()
        if phase != "recompute" or convention.recompute
    }
    parameters = sympy.expand(num_parameters(lettered))
    return Polynomial(flops, parameters, dict(letters.values()), convention)


def _lettered(spec: ModelSpec, letter: Any) -> ModelSpec:
    part = spec.attention
    is_whole = spec.position.rotary_fraction == 1 or spec.position.kind != "rotary"
    attention = replace(part, num_heads=letter("H", part.num_heads))
    if part.kind == "standard":
        attention = replace(
            attention,
            head_size=letter("d", spec.head_size) if is_whole else spec.head_size,
            num_key_value_heads=letter("K", spec.num_key_value_heads)
            if spec.num_key_value_heads != part.num_heads
            else attention.num_heads,
        )
    return replace(
        spec,
        vocab_size=letter("V", spec.vocab_size),
        num_layers=letter("L", spec.num_layers) if spec.moe is None else spec.num_layers,
        hidden_size=letter("D", spec.hidden_size),
        attention=attention,
        mlp=replace(spec.mlp, intermediate_size=letter("F", spec.mlp.intermediate_size)),
    )


def _sympy() -> ModuleType:
    try:
        import sympy
    except ImportError as error:
        raise SymbolicError(
            "symbols need sympy, which is not installed: pip install 'torchledger[symbolic]'"
        ) from error
    module: ModuleType = sympy
    return module
