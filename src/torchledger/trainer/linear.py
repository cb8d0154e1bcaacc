"""The two modules that hold matrices: torch's own, made without values, which `init` alone draws."""

from torch import nn

__all__ = ["Embedding", "Linear"]


class Linear(nn.Linear):
    """`nn.Linear` whose weight [out, in] and bias [out] hold no values yet.

    torch's constructor draws values that would be thrown away, which costs seconds for a large model and moves the
    global random stream. The type stays a subclass so that whatever handles `nn.Linear` handles it.
    """

    def reset_parameters(self) -> None:
        """Draw nothing."""


class Embedding(nn.Embedding):
    """`nn.Embedding` whose table [rows, width] holds no values yet."""

    def reset_parameters(self) -> None:
        """Draw nothing."""
