"""`count --symbolic`: the cost of a model as polynomials in its sizes."""

from __future__ import annotations

from torchledger.cli.asked import Asked
from torchledger.cli.output import show, show_json
from torchledger.cli.step import question_of
from torchledger.formula import polynomial
from torchledger.ledger import Convention
from torchledger.units import group_digits
from torchledger.view.screen import Facts, Lines

_LETTERS = {
    "B": "sequences in a micro-batch",
    "T": "tokens in a sequence",
    "L": "layers",
    "D": "hidden size",
    "H": "heads",
    "K": "key-value heads",
    "d": "head size",
    "F": "inner width of the MLP",
    "V": "vocabulary",
}


def answer_symbolic(asked: Asked, convention: Convention, *, as_json: bool) -> None:
    """Show parameters and FLOPs of a micro-batch, phase by phase, in letters; and the letters' values."""
    found = polynomial(asked.model, asked.recipe, convention=convention)
    shown = {"parameters": found.parameters, **found.flops, "all phases": found.total}
    texts = {name: _readable(str(value)) for name, value in shown.items()}
    values = {str(letter): value for letter, value in found.values.items()}
    if as_json:
        answer = {"polynomials": {name: str(value) for name, value in shown.items()}, "values": values}
        show_json("count", question_of(asked), answer, (convention.text,))
        return
    letters = tuple((letter, f"{group_digits(value)}  {_LETTERS[letter]}") for letter, value in values.items())
    show(
        (
            Lines((f"{asked.model.name} in letters, one micro-batch",), mark="headline"),
            Facts((("parameters", texts.pop("parameters")),)),
            Facts(tuple(texts.items()), "FLOPs"),
            Facts(letters, "where"),
            Lines((f"convention: {convention.text}",), mark="note"),
        )
    )


def _readable(polynomial_text: str) -> str:
    """Powers and products as people write them.

    >>> _readable("2*B*T**2 + V")
    '2·B·T² + V'
    """
    return polynomial_text.replace("**2", "²").replace("**3", "³").replace("*", "·")
