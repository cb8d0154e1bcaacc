"""`Host`: what a chip reaches of its host's memory, where optimizer state and kept activations may wait.

Gradients go to the host and new weights come back over the link between the two; the update there is as fast as the
host's memory, of which each chip has its share (DeepSpeed's CPU-Adam is made for bandwidth: ZeRO-Offload,
arXiv:2101.06840, section 5.1). Kept activations go over the same link in other moments: out in forward passes, back in
backward ones, which a rank runs in turn; gradients and weights go when the last backward pass has ended. So none waits
for another, and what copies add to a step is the sum of both.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from torchledger.machine import Chip
from torchledger.planner.fabric_facts import host_bus
from torchledger.planner.memory_state import state_rule
from torchledger.planner.stack import Stack
from torchledger.spec import Recipe, Strategy
from torchledger.units import format_rate


class Host(NamedTuple):
    """A chip's share of its host.

    Attributes:
        link_bytes_per_s: what copies in one direction sustain.
        memory_bytes_per_s: what the host's kernels sustain for one of its chips while they work for all.
        name: the host in words.
    """

    link_bytes_per_s: float
    memory_bytes_per_s: float
    name: str


class HostRules(NamedTuple):
    """What a recipe offloads, and how fast it moves; nothing where it offloads nothing.

    Attributes:
        gradient_bytes: of a parameter that a rank updates, what goes to the host.
        weight_bytes: what comes back.
        kept_share: of what blocks keep, what waits on the host.
        bytes_per_s: of copies in one direction.
    """

    gradient_bytes: float = 0.0
    weight_bytes: float = 0.0
    kept_share: float = 0.0
    bytes_per_s: float = 1.0

    @property
    def gradient_s(self) -> float:
        """Seconds of a parameter's gradient."""
        return self.gradient_bytes / self.bytes_per_s

    @property
    def weight_s(self) -> float:
        """Seconds of a new weight."""
        return self.weight_bytes / self.bytes_per_s

    @property
    def kept_s(self) -> float:
        """Seconds of a byte that is kept, in one direction, on average over those that stay and those that go."""
        return self.kept_share / self.bytes_per_s


def host_of(chip: Chip) -> Host:
    """The chip's share of a typical host, with all chips of the host at work.

    A chip that has the host's memory for its own copies nothing faster than that.

    >>> from torchledger.machine import get
    >>> host = host_of(get("h100"))  # 64 GB/s · 0.878; two sockets of 307.2 GB/s · 0.83 for 8 chips
    >>> round(host.link_bytes_per_s / 1e9, 1), round(host.memory_bytes_per_s / 1e9, 1)
    (56.2, 63.7)
    """
    tables = _tables()
    share = tables["memory"]["share"]
    if chip.memory_bandwidth is not None and (chip.memory_is_unified or chip.kind == "cpu"):
        rate = chip.memory_bandwidth * share
        return Host(rate, rate, "the chip's own memory")
    row = next((each for each in tables["host"].values() if _fits(each, chip)), tables["host"]["default"])
    name = chip.form_factor if host_bus(chip.form_factor) else row["link"]
    link = tables["link"][name]
    known = host_bus(name)
    nominal = link["bytes_per_s"] if known is None else known[1]
    memory = row["bytes_per_s"] * share / row["chips"]
    return Host(min(nominal * link["share"], memory), memory, f"{row['name']}, {name}")


def host_rules(recipe: Recipe, strategy: Strategy, stack: Stack, host: Host) -> HostRules:
    """What a recipe offloads in a layout: gradients in the format they add up in, weights as the stack stores them."""
    gradient = weight = 0.0
    if recipe.offload_optimizer:
        optimizer = recipe.optimizer
        rule = state_rule(stack, recipe.precision, optimizer.kind, optimizer.momentum > 0, strategy.shard_level)
        gradient, weight = rule.gradient, rule.weight
    return HostRules(gradient, weight, recipe.offload_activations, host.link_bytes_per_s)


def host_notes(recipe: Recipe, host: Host) -> tuple[str, ...]:
    """What the seconds of offload rest on; nothing where nothing is offloaded."""
    if not recipe.offload_optimizer and not recipe.offload_activations:
        return ()
    found = [f"host: {host.name}; a chip copies {format_rate(host.link_bytes_per_s)} each way"]
    if recipe.offload_optimizer:
        found[0] += f" and has {format_rate(host.memory_bytes_per_s)} of its memory"
        found.append(
            "offloaded update: taken as bound by the host's memory; clipping stays on the chip; nothing of it hides,"
            " though stacks that copy bucket by bucket hide a part (ZeRO-Offload, arXiv:2101.06840, section 4.1)"
        )
        if recipe.optimizer.kind == "muon":
            found.append("Muon's products on the host are counted by their bytes only: a step is longer than this")
    if recipe.offload_activations:
        found.append("offloaded activations: copied beside the passes, the head's never leave")
    if recipe.offload_optimizer and recipe.offload_activations:
        found.append(
            "the link to the host is never asked twice at once: activations go out in forward passes and come back in"
            " backward ones, gradients go when the last has ended; a stack that sends gradients while it runs, or"
            " network adapters behind the same link, would make both slower than this"
        )
    return tuple(found)


def _fits(row: dict[str, Any], chip: Chip) -> bool:
    architectures = row.get("architectures", [chip.architecture])
    return chip.form_factor in row["form_factors"] and chip.architecture in architectures


@cache
def _tables() -> dict[str, Any]:
    text = resources.files("torchledger.planner").joinpath("data/hosts.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
