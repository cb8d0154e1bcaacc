"""Every model of the zoo, family by family."""

from __future__ import annotations

from zoo.decoders import DENSE, MIXTURES
from zoo.encoders import ENCODERS, PAIRS
from zoo.model import ZooModel
from zoo.multimodal import MULTIMODAL
from zoo.recurrent import RECURRENT
from zoo.sound import SOUND
from zoo.vision import VISION

_ALL = (*DENSE, *MIXTURES, *RECURRENT, *ENCODERS, *PAIRS, *VISION, *SOUND, *MULTIMODAL)
ZOO: tuple[ZooModel, ...] = tuple(model for model in _ALL if not model.needs_values)
REFUSED: tuple[ZooModel, ...] = tuple(model for model in _ALL if model.needs_values)


def named(name: str) -> ZooModel:
    """The model of that name."""
    return next(model for model in ZOO if model.name == name)
