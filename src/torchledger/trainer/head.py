"""The head: logits of what the model's last layer gives, or at once their loss."""

from typing import Protocol

from jaxtyping import Float, Int
from torch import Tensor

from torchledger.trainer.held import held
from torchledger.trainer.linear import Linear
from torchledger.trainer.loss import LossInPieces, Vocabulary

__all__ = ["Head", "SplitVocabulary"]


class SplitVocabulary(Vocabulary, Protocol):
    """How ranks that each have some rows of a head work together (`parallel_head`)."""

    def read(self, h: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length width"]:
        """All tokens of the stream, from each rank's share of them; of the gradient each rank sends a share back."""
        ...

    def logits(self, mine: Float[Tensor, "... rows"]) -> Float[Tensor, "... vocabulary"]:
        """A tensor of all logits, of which this rank holds its own."""
        ...


class Head(Linear):
    """A linear map to the vocabulary.

    Attributes:
        split: how ranks share its rows; nothing where this process has all of them.
    """

    split: SplitVocabulary | None = None

    def forward(
        self,
        input: Tensor,  # noqa: A002  # torch's name
        targets: Int[Tensor, "batch length"] | None = None,
        loss: LossInPieces | None = None,
    ) -> Tensor:
        """Logits; or with `targets` their mean cross-entropy, of so many tokens at a time as `loss` says.

        The loss is made in here, so that whoever brings the head's weight here for this call (FSDP2) brings it for the
        loss too.
        """
        h = input if self.split is None else self.split.read(input)
        if targets is None or loss is None:
            logits = super().forward(h)
            return logits if self.split is None else self.split.logits(logits)
        in_pieces: Tensor = loss(h.flatten(0, 1), held(self.weight), held(self.bias), targets.flatten(), self.split)
        return in_pieces
