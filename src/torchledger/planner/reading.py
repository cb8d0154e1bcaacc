"""FLOPs of a token under every named convention, without recompute and with it: what an MFU may have meant."""

from __future__ import annotations

from dataclasses import dataclass

from torchledger.formula import per_token
from torchledger.formula.per_token import FORMULAS
from torchledger.spec import ModelSpec

#: The formula that has full recompute in it already.
_WITH_RECOMPUTE = "Narayanan with recompute"
#: What each kind of recompute runs again, in words.
RECOMPUTE: dict[str, str] = {
    "none": "",
    "selective": "attention's core run again (arXiv:2205.05198, section 5)",
    "full": "the whole forward pass run again (4/3)",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to count a token.

    Attributes:
        convention: who counts so.
        formula: what is computed.
        source: where it stands.
        recompute: `none` for model FLOPs; `selective` or `full` for hardware FLOPs.
        flops_per_token: FLOPs.
    """

    convention: str
    formula: str
    source: str
    recompute: str
    flops_per_token: float

    @property
    def name(self) -> str:
        """The convention, and what is run again in it."""
        again = RECOMPUTE[self.recompute]
        return f"{self.convention}, {again}" if again and self.convention != _WITH_RECOMPUTE else self.convention


def shape_assumed(spec: ModelSpec, convention: str) -> str:
    """What a formula takes for granted of a model's shape and this one does not have; empty where it fits.

    Those of layers and widths alone (Narayanan, Casson) have as many key-value heads as heads, heads that fill the
    hidden size, and an MLP of two matrices, four times as wide.
    """
    if not convention.startswith(("Narayanan", "Casson")):
        return ""
    heads, inner = spec.attention.num_heads, 4 * spec.hidden_size
    standard = spec.attention.kind == "standard"
    wrong = (
        (not standard, "standard attention"),
        (
            standard and spec.num_key_value_heads != heads,
            f"{heads} key-value heads (the model has {spec.num_key_value_heads})",
        ),
        (standard and spec.head_size * heads != spec.hidden_size, "heads that fill the hidden size"),
        (spec.mlp.kind == "gated", "an MLP of two matrices (the model's has three)"),
        (spec.mlp.intermediate_size != inner, f"an MLP {inner} wide (the model's is {spec.mlp.intermediate_size})"),
        (spec.moe is not None, "no experts"),
    )
    return ", ".join(text for is_wrong, text in wrong if is_wrong)


def model_readings(spec: ModelSpec, sequence_length: int) -> tuple[Reading, ...]:
    """Model FLOPs of a token by each convention, our own count first."""
    return tuple(
        Reading(each.name, each.formula, each.source, "none", float(each.flops))
        for each in per_token(spec, sequence_length)
        if each.name != _WITH_RECOMPUTE
    )


def hardware_readings(spec: ModelSpec, sequence_length: int, kinds: tuple[str, ...]) -> tuple[Reading, ...]:
    """The same with recompute: all of the forward pass is a third more; attention's core is a third of its own FLOPs.

    Every formula is a straight line in the sequence length, so attention's FLOPs are what it says less what it says of
    a sequence of no tokens. Narayanan's equation 3 has full recompute in it.
    """
    found = []
    for kind in kinds:
        for name, (formula, source, count) in FORMULAS.items():
            flops = float(count(spec, sequence_length))
            if name == _WITH_RECOMPUTE:
                if kind == "full":
                    found.append(Reading(name, formula, source, kind, flops))
                continue
            again = flops / 3 if kind == "full" else (flops - float(count(spec, 0))) / 3
            found.append(Reading(name, formula, source, kind, flops + again))
    return tuple(found)
