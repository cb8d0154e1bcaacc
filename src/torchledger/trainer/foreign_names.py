"""Which tensors of a Hugging Face checkpoint are which of ours: `foreign_names.toml` applied to one model."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from torchledger.spec import ModelSpec, SpecError
from torchledger.trainer.weight_layout import LAYOUTS

__all__ = ["Pairing", "family_of", "pairings"]

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


@dataclass(frozen=True, slots=True)
class Pairing:
    """One tensor there and what it is here.

    Attributes:
        theirs: its name there.
        ours: the names of our tensors that are in it, in order.
        layouts: how it is stored, applied one after the other when ours are joined.
    """

    theirs: str
    ours: tuple[str, ...]
    layouts: tuple[str, ...] = ()

    def split(self, spec: ModelSpec, stored: Tensor, rows: Sequence[int]) -> list[Tensor]:
        """Our tensors, as views or copies of the stored one; `rows` is the first size of each."""
        found = [stored]
        for layout in reversed(self.layouts):
            assert len(found) == 1
            found = LAYOUTS[layout].split(spec, found[0], rows)
        return found

    def join(self, spec: ModelSpec, ours: Sequence[Tensor]) -> Tensor:
        """The tensor to store."""
        found = list(ours)
        for layout in self.layouts:
            found = [LAYOUTS[layout].join(spec, found)]
        assert len(found) == 1
        return found[0]


def family_of(model_type: str, spec: ModelSpec) -> str:
    """The table of names that a model of this `model_type` has; two types have two."""
    if model_type == "gemma3":
        return "gemma3_text"
    if model_type == "falcon" and spec.parallel and not spec.norm.shared:
        return "falcon_two_norms"
    if model_type == "gpt_bigcode" and spec.num_key_value_heads > 1:
        return "gpt_bigcode_heads"
    return model_type


def pairings(model_type: str, spec: ModelSpec, names: Iterable[str]) -> list[Pairing]:
    """Each tensor that a checkpoint of this family stores for the tensors called `names` here.

    Args:
        model_type: of the family, as `config.json` names it.
        spec: the model.
        names: of our tensors; those of a fused one have to be there together.

    Raises:
        SpecError: the family has no place for one of them.
    """
    rules = _rules(family_of(model_type, spec))
    found: dict[str, dict[str, str]] = {}
    layouts: dict[str, tuple[str, ...]] = {}
    order: dict[str, tuple[str, ...]] = {}
    homeless = []
    for name in names:
        rule = _rule_of(name, rules)
        if rule is None:
            homeless.append(name)
            continue
        role, theirs, modules, stored = rule
        found.setdefault(theirs, {})[role] = name
        layouts[theirs], order[theirs] = stored, modules
    if homeless:
        listed = ", ".join(homeless[:4]) + (f" and {len(homeless) - 4} more" if len(homeless) > 4 else "")
        raise SpecError(f"{spec.name}: a {model_type} checkpoint has no place for {listed}")
    return [
        Pairing(theirs, tuple(by_role[role] for role in order[theirs]), layouts[theirs])
        for theirs, by_role in found.items()
    ]


@cache
def _rules(family: str) -> Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Our module with `#` for numbers -> (its name there, all modules in that tensor, layouts)."""
    rules: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {}
    for key, value in _flat(family).items():
        if not value:
            continue
        stored, *layouts = [value] if isinstance(value, str) else value
        head, _, last = key.rpartition(".")
        modules = tuple(f"{head}.{part}" if head else part for part in last.split("+"))
        rules |= dict.fromkeys(modules, (stored, modules, tuple(layouts)))
    return rules


def _flat(family: str) -> dict[str, Any]:
    """A family's table with those it is like; what is fused in one of them is not there by itself, and vice versa."""
    table = _table()[family]
    inherited = _flat(table["like"]) if "like" in table else {}
    own = {key: value for key, value in table.items() if key != "like"}
    fused = {
        f"{key.rpartition('.')[0]}.{part}" for key in own if "+" in key for part in key.rpartition(".")[2].split("+")
    }
    return {key: value for key, value in inherited.items() if key not in fused} | own


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("foreign_names.toml").read_text("utf-8"))


def _rule_of(
    name: str, rules: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]]
) -> tuple[str, str, tuple[str, ...], tuple[str, ...]] | None:
    """(our module, name there, modules of that tensor, layouts) of one of our tensors."""
    numbers = _NUMBER.findall(name)
    pattern = _NUMBER.sub("#", name)
    module, _, kind = pattern.rpartition(".")
    for key, suffix in ((pattern, ""), (module, f".{kind}")):
        if key in rules:
            stored, modules, layouts = rules[key]
            for number in numbers:
                stored = stored.replace("#", number, 1)
            return key, stored + suffix, modules, layouts
    return None
