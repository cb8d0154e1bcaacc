"""One registry: every rule is found by its name, and takes numbers and symbols alike."""

import inspect

import pytest
import sympy

import torchledger.ops
from torchledger.ledger import WORK_FIELDS, Work
from torchledger.ops import Piece, rule, rules

NAMED = {"name": "gelu", "op": "attention_scores"}
#: A name that each rule of many operations knows.
KNOWN = {
    "activation": "mish", "activation_backward": "mish", "criterion": "mse", "criterion_backward": "mse",
    "elementwise": "sign", "matrix_factorization": "lu", "quantized": "fake_quantize", "reduction": "sum",
}  # fmt: skip


def _arguments(function, size):
    """An argument for each size a rule needs: a name where it takes one, a number where it asks for a whole one."""
    needed = [p for p in inspect.signature(function).parameters.values() if p.default is inspect.Parameter.empty]
    values = {}
    for p in needed:
        if p.annotation == "tuple[Amount, Amount]":
            values[p.name] = (size(f"{p.name}_0"), size(f"{p.name}_1"))
        else:
            values[p.name] = NAMED.get(p.name) or (12 if p.annotation == "int" else size(p.name))
    if function.__name__ in KNOWN:
        values["name"] = KNOWN[function.__name__]
    return values


def test_every_rule_is_public_under_its_own_name():
    for name, function in rules.items():
        assert getattr(torchledger.ops, name) is function
        assert function.__name__ == name


@pytest.mark.parametrize("name", rules)
def test_a_rule_gives_known_amounts_and_named_sizes(name):
    for piece in rules[name](**_arguments(rules[name], lambda _: 12)):
        assert not piece.work.unknown_fields
        assert piece.work.bytes_kept == 0
        assert piece.kind == "collective" or piece.work.bytes_sent == 0
        assert all(isinstance(size, int) for _, size in piece.shape)
        assert all(isinstance(getattr(piece.work, field), int) for field in WORK_FIELDS)


@pytest.mark.parametrize("name", rules)
def test_a_rule_with_symbols_gives_the_same_numbers_once_they_are_put_in(name):
    numbers = {}

    def symbol(parameter):
        made = sympy.Symbol(parameter, positive=True, integer=True)
        numbers[made] = 12 + len(numbers)
        return made

    lettered = rules[name](**_arguments(rules[name], symbol))
    plain = rules[name](
        **_arguments(rules[name], lambda parameter: numbers.get(sympy.Symbol(parameter, positive=True, integer=True)))
    )
    for one, other in zip(lettered, plain, strict=True):
        for field in WORK_FIELDS:
            assert sympy.sympify(getattr(one.work, field)).subs(numbers) == getattr(other.work, field)


def test_another_rule_is_registered_in_one_line():
    @rule
    def hadamard(n):
        return (Piece("hadamard", "pointwise", Work.of_flops(n)),)

    try:
        assert rules["hadamard"](8)[0].work.flops_full == 8
    finally:
        del rules["hadamard"]


def test_every_rule_says_where_its_count_is_from_and_works_an_example():
    for name, function in rules.items():
        assert ">>>" in function.__doc__, name
