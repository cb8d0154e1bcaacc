"""`Said`: flags, files and reasons that a writer collects while it says a layout to a stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchledger.spec import Recipe, Strategy

#: One stack's table of `data/launch.toml`.
Facts = Mapping[str, Any]


@dataclass(slots=True)
class Said:
    """What was said, and what could not be.

    Attributes:
        facts: the stack's words.
        flags: words of the command line.
        files: contents by file name.
        cannot: reasons.
        notes: hints.
    """

    facts: Facts
    flags: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    cannot: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def say(self, name: str, *values: object) -> None:
        """Add the stack's flag of this name with its values."""
        self.flags.append(self.facts["flags"][name])
        self.flags.extend(str(value) for value in values)

    def refuse(self, what: str) -> None:
        """Add a reason: what is asked and why the stack cannot do it."""
        self.cannot.append(f"{self.facts['title']}: {what}")

    def refuse_if(self, holds: object, what: str) -> None:
        """Add a reason where its condition holds."""
        if holds:
            self.refuse(what)


def refuse_common(said: Said, recipe: Recipe, *, offloads_optimizer: bool = False) -> None:
    """What none of the stacks has a flag for."""
    said.refuse_if(
        recipe.lora_rank, f"low-rank adapters of rank {recipe.lora_rank} are part of a training script, no flag"
    )
    said.refuse_if(
        recipe.trainable, f"training only {', '.join(recipe.trainable)} is part of a training script, no flag"
    )
    said.refuse_if(
        recipe.offload_activations, f"no flag keeps {recipe.offload_activations:.0%} of the activations in host memory"
    )
    said.refuse_if(
        recipe.offload_optimizer and not offloads_optimizer, "no flag moves the optimizer alone to host memory"
    )


def refuse_unless_alone(said: Said, strategy: Strategy) -> None:
    """What a stack that knows data parallelism only cannot do."""
    kinds = {
        "tensor parallel": strategy.tensor_parallel,
        "pipeline parallel": strategy.pipeline_parallel,
        "context parallel": strategy.context_parallel,
        "expert parallel": strategy.expert_parallel,
    }
    for name, ranks in kinds.items():
        said.refuse_if(ranks > 1, f"{name} over {ranks} ranks is part of the model's own code, no flag")
