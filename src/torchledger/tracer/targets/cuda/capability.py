"""Compute capability of a chip, by which PyTorch chooses kernels."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Any

from torchledger.machine import Chip, get


class UnknownCapability(ValueError):
    """The chip has no compute capability in our data."""


@functools.cache
def _facts() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("capability.toml").read_text("utf-8"))


def default_chip() -> Chip:
    """The chip that a step is traced for where none is named."""
    return get(_facts()["default"])


def capability_of(chip: Chip) -> tuple[int, int]:
    """Major and minor compute capability.

    Raises:
        UnknownCapability: not an NVIDIA chip, or one that the data file does not have.
    """
    facts = _facts()
    major, minor = facts["family"].get(chip.family, (0, 0))
    if not major:
        raise UnknownCapability(
            f"{chip.name} has no compute capability in targets/cuda/capability.toml, so which kernels CUDA would "
            f"choose is unknown. Trace for a chip that has one: {', '.join(sorted(facts['family']))}"
        )
    return major, minor
