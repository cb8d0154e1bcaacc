"""What determines a run bit for bit: model, recipe, data, how this machine computes; and where two runs differ."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from torchledger import config
from torchledger.meter import device as devices
from torchledger.spec import ModelSpec, Recipe, Strategy
from torchledger.trainer.schedule import learning_rate

__all__ = ["Change", "Identity", "numerics"]

_SAME_SUMS = ("prefetch", "reshard", "overlap_data")  # when weights and gradients travel, not what is added to what
_NOTES = {
    "numerics.world_size": "the same batches in the same order; sums over ranks are rounded otherwise",
    "numerics.layout": "the same batches in the same order; sums over ranks are rounded otherwise",
    "numerics.num_threads": "sums are cut otherwise",
    "numerics.compiled": "compiled layers round otherwise",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs.

    Attributes:
        field: dotted path (`spec.hidden_size`, `recipe.seed`, `numerics.num_threads`).
        before: its value in the checkpoint.
        after: its value now.
        note: what it does to the run.
    """

    field: str
    before: Any
    after: Any
    note: str = ""

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"{self.field}: {_shown(self.before)} in the checkpoint, {_shown(self.after)} now{note}"


@dataclass(frozen=True, slots=True)
class Identity:
    """What determines the numbers of a run.

    Attributes:
        spec: the model.
        recipe: how it is trained; `num_tokens` is the horizon of the schedule.
        data: hashes of the training tokens and the tokenizer.
        numerics: whatever else of this machine and installation decides bits (see `numerics`).
    """

    spec: ModelSpec
    recipe: Recipe
    data: Mapping[str, Any]
    numerics: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Rows for JSON."""
        return {
            "spec": config.to_dict(self.spec),
            "recipe": config.to_dict(self.recipe),
            "data": dict(self.data),
            "numerics": dict(self.numerics),
        }

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        """Read back what `to_dict` wrote.

        Raises:
            ValueError: a field that this version does not know, or a value it does not take (`ConfigError`).
            KeyError: a part is missing.
        """
        spec = config.load(None, ModelSpec, table=row["spec"]).value
        recipe = config.load(None, Recipe, table=row["recipe"]).value
        return cls(spec, recipe, dict(row["data"]), dict(row["numerics"]))

    def model_changes(self, now: "Identity") -> tuple[Change, ...]:
        """Fields of the model that differ: with any of these the weights do not fit."""
        before, after = (replace(each.spec, name="", source="", notes=()) for each in (self, now))  # words, not sizes
        return tuple(_differing("spec", _leaves(before), _leaves(after)))

    def changes(self, now: "Identity", step: int) -> tuple[Change, ...]:
        """Everything else that differs: with any of these the run goes on, but not bit for bit.

        Args:
            now: the run as it would go on.
            step: the next update, for what a changed schedule does to its learning rate.
        """
        rates = [learning_rate(r.optimizer, step, r.num_steps) for r in (self.recipe, now.recipe)]
        note = f"learning rate of step {step}: {rates[0]:.4g} becomes {rates[1]:.4g}" if rates[0] != rates[1] else ""
        steps = (self.recipe.num_steps, now.recipe.num_steps)
        length = "" if steps[0] == steps[1] else f"num_steps: {steps[0]:,} in the checkpoint, {steps[1]:,} now"
        notes = {"recipe.optimizer": note, "recipe.num_tokens": "; ".join(filter(None, (length, note)))}
        recipe = [
            replace(change, note=next((text for name, text in notes.items() if change.field.startswith(name)), ""))
            for change in _differing("recipe", _leaves(self.recipe), _leaves(now.recipe))
        ]
        others = [
            replace(change, note=_NOTES.get(change.field, ""))
            for part in ("data", "numerics")
            for change in _differing(part, getattr(self, part), getattr(now, part))
        ]
        return (*recipe, *others)


def numerics(
    device: torch.device,
    world_size: int = 1,
    strategy: Strategy | None = None,
    *,
    deterministic: bool = False,
    compiled: str = "no",
) -> dict[str, Any]:
    """What decides the last bits beside model, recipe and data.

    The number of threads cuts sums differently, and so does how work is spread over ranks; the processor and its
    features choose kernels and how they cut their work; versions change both. Where there are several ranks `layout`
    says what of the strategy is not as it is by default; one process has none. Deterministic mode takes other kernels,
    and so do compiled layers.
    """
    layout = {} if strategy is None or world_size == 1 else {"layout": _layout(strategy)}
    return {
        "device": device.type,
        "device_name": devices.facts(device).name,
        "num_threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "world_size": world_size,
        **layout,
        **({"deterministic": True} if deterministic else {}),
        **({} if compiled == "no" else {"compiled": compiled}),
    }


def _layout(strategy: Strategy) -> str:
    """What of it changes sums, as words."""
    plain, asked = _leaves(Strategy()), _leaves(strategy)
    words = [f"{name} {value}" for name, value in asked.items() if value != plain.get(name) and name not in _SAME_SUMS]
    return ", ".join(words)


def _leaves(value: Any) -> dict[str, Any]:
    return {".".join(map(str, place)): leaf for place, leaf in config.leaves(value)}


def _differing(part: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            yield Change(f"{part}.{name}", before.get(name), after.get(name))


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return f"{text[:12]}..." if len(text) > 40 else text
