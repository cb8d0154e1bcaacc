"""The recipes that a search compares: precisions and what is offloaded, as axes of the grid beside the layout's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, get_args

from torchledger.config import ConfigError, did_you_mean
from torchledger.spec import Recipe
from torchledger.spec.recipe import Precision


class Offload(NamedTuple):
    """What waits in host memory.

    Attributes:
        activations: share of those kept for the backward pass.
        optimizer: its state and its update.
    """

    activations: float
    optimizer: bool


#: What the words of `--search-offload` mean.
OFFLOADS: Mapping[str, Offload] = {
    "none": Offload(0.0, optimizer=False),
    "optimizer": Offload(0.0, optimizer=True),
    "activations": Offload(1.0, optimizer=False),
    "both": Offload(1.0, optimizer=True),
}
_PRECISIONS: Mapping[str, Precision] = {each: each for each in get_args(Precision)}


def recipes_of(recipe: Recipe, typed: Mapping[str, Any]) -> tuple[Recipe, ...]:
    """Every recipe that is searched, in the order of the options: of two that cost the same the first is preferred.

    Args:
        recipe: as asked; what no option varies stays as it is.
        typed: options of the command.

    Raises:
        ConfigError: a word that is none; all of them. Or a precision that is given besides.
    """
    mistakes: list[tuple[str, str]] = []
    precisions = _chosen("--search-precision", typed.get("search_precision"), _PRECISIONS, mistakes)
    offloads = _chosen("--search-offload", typed.get("search_offload"), OFFLOADS, mistakes)
    if precisions and typed.get("precision") is not None:
        mistakes.append(("--precision", "is one of those that --search-precision lists; leave one of the two out"))
    if mistakes:
        raise ConfigError("plan --search", mistakes)
    own = Offload(recipe.offload_activations, recipe.offload_optimizer)
    return tuple(
        replace(recipe, precision=precision, offload_activations=away.activations, offload_optimizer=away.optimizer)
        for precision in precisions or (recipe.precision,)
        for away in offloads or (own,)
    )


def _chosen(flag: str, text: str | None, known: Mapping[str, Any], mistakes: list[tuple[str, str]]) -> tuple[Any, ...]:
    """The values of the words of an option, each once; none where it is not given."""
    if text is None:
        return ()
    words = list(dict.fromkeys(word.strip() for word in text.split(",")))
    mistakes += [(flag, f"no {word!r}; {did_you_mean(word, known)}") for word in words if word not in known]
    return tuple(known[word] for word in words if word in known)
