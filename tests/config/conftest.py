"""A configuration with a field of every kind that this room reads."""

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from torchledger.units import Bytes, Count, Seconds


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer.

    Attributes:
        kind: its name.
        learning_rate, decay: rates,
            both per step.
    """

    kind: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = 3e-4
    decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float | None = 1.0


@dataclass(frozen=True, slots=True)
class Layer:
    size: int
    name: str = "layer"

    def __post_init__(self):
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}; write a larger one")


@dataclass(frozen=True, slots=True)
class Model:
    hidden_size: int
    num_heads: int = 4
    tied: bool = False
    layers: tuple[Layer, ...] = ()
    head: Layer | None = None

    def __post_init__(self):
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is no multiple of num_heads {self.num_heads}")


@dataclass(frozen=True, slots=True)
class Run:
    """A run of everything."""

    model: Model
    name: str = "run"
    tokens: Count = 0
    memory: Bytes | Literal["auto"] = "auto"
    limit: Seconds | None = None
    micro_batch: int | Literal["auto"] = "auto"
    optimizer: Optimizer = field(default_factory=lambda: Optimizer(learning_rate=1e-3, clip=None))
    colour: Colour = Colour.RED
    data: Path = Path("data")
    checkpoint: Path | None = Path("last")
    scaling: dict[str, float | str] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    anything: Any = 0
    note: str | None = None


@pytest.fixture(scope="session")
def run_class() -> type[Run]:
    return Run


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Work in an empty folder; call it to write a file there."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str | bytes) -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write
