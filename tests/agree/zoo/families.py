"""Every model of the zoo, family by family."""

from __future__ import annotations

from zoo.decoders import DENSE
from zoo.encoders import ENCODERS, PAIRS
from zoo.mixtures import MIXTURES
from zoo.model import ZooModel
from zoo.multimodal import MULTIMODAL
from zoo.recurrent import RECURRENT
from zoo.sound import SOUND
from zoo.vision import VISION

ZOO: tuple[ZooModel, ...] = (*DENSE, *MIXTURES, *RECURRENT, *ENCODERS, *PAIRS, *VISION, *SOUND, *MULTIMODAL)


def named(name: str) -> ZooModel:
    """The model of that name."""
    return next(model for model in ZOO if model.name == name)
