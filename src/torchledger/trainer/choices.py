"""Multiple-choice questions, as in HellaSwag: the model answers with the ending that it finds likeliest."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from torchledger.spec import Recipe
from torchledger.trainer.model import Transformer
from torchledger.trainer.questions import Question
from torchledger.trainer.step import MicroBatch
from torchledger.trainer.targets import IGNORED
from torchledger.trainer.tokenizer import Tokenizer
from torchledger.trainer.validation import batch_losses

if TYPE_CHECKING:
    from torchledger.trainer.parallel import Parallel

__all__ = ["Accuracy", "answer", "encode_ending"]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How many questions were answered right.

    Attributes:
        num_questions: how many there were.
        num_right: where the likeliest ending as a whole is the right one.
        num_right_normalized: where the likeliest for its length is: the logarithm of its probability over its
            characters, as the Language Model Evaluation Harness reports it (`acc_norm`).
        chance: the share that guessing gets right.
    """

    num_questions: int
    num_right: int
    num_right_normalized: int
    chance: float

    @property
    def plain(self) -> float:
        """Share answered right by probability."""
        return self.num_right / self.num_questions

    @property
    def normalized(self) -> float:
        """Share answered right by probability for length."""
        return self.num_right_normalized / self.num_questions


def answer(
    model: Transformer,
    tokenizer: Tokenizer,
    questions: tuple[Question, ...],
    recipe: Recipe,
    *,
    stop: Callable[[], bool] = lambda: False,
    parallel: "Parallel | None" = None,
) -> Accuracy | None:
    """Answer every question; nothing if told to stop before the last.

    An ending's score is Σ ln p(token | context and the tokens before). Draws no random numbers, changes no gradient,
    and leaves the model in training mode. One ending at a time, so that no padding meets the model and memory stays
    below that of a training step.

    Args:
        model: the model.
        tokenizer: of its training data.
        questions: from `read_questions`.
        recipe: for its precision; the model sees the last `sequence_length` tokens.
        stop: asked before each ending; true ends it early. Of many ranks none is asked.
        parallel: how the model is spread over ranks.
    """
    device = model.embedding.weight.device
    rows = (
        _row(tokenizer, each, ending, recipe, device, is_padded=parallel is not None)
        for each in questions
        for ending in each.endings
    )
    losses = batch_losses(model, rows, recipe, stop, parallel)
    if len(losses) < sum(len(each.endings) for each in questions):
        return None
    scores = iter([-loss for loss, _ in losses])
    right = normalized = 0
    for each in questions:
        of_endings = [next(scores) for _ in each.endings]
        for_length = [score / len(ending) for score, ending in zip(of_endings, each.endings, strict=True)]
        right += _best(of_endings) == each.label
        normalized += _best(for_length) == each.label
    chance = sum(1 / len(each.endings) for each in questions) / len(questions)
    return Accuracy(len(questions), right, normalized, chance)


def _best(scores: list[float]) -> int:
    return max(range(len(scores)), key=scores.__getitem__)


def _row(
    tokenizer: Tokenizer, question: Question, ending: str, recipe: Recipe, device: torch.device, *, is_padded: bool
) -> MicroBatch:
    """One ending as a batch of one row: only its own tokens are targets.

    The context follows an end-of-text token, as every document in training does. What is too long loses its beginning.
    """
    ids, num_ending = encode_ending(tokenizer, question.context, ending)
    ids, length = ids[-recipe.sequence_length - 1 :], recipe.sequence_length
    tokens, targets = ids[:-1], [IGNORED] * (len(ids) - 1)
    num_ending = min(num_ending, len(targets))
    targets[-num_ending:] = ids[-num_ending:]
    if is_padded:  # ranks that share a sequence need its full length; what follows the ending cannot be seen by it
        missing = length - len(tokens)
        tokens, targets = tokens + [tokenizer.end_of_text_id] * missing, targets + [IGNORED] * missing
    batch = tuple(torch.tensor([each], device=device) for each in (tokens, targets))
    return (*batch, torch.zeros_like(batch[0])) if recipe.document_mask else batch


def encode_ending(tokenizer: Tokenizer, context: str, ending: str) -> tuple[list[int], int]:
    """End-of-text, context and ending as ids, and how many of them, at the end, are the ending's.

    Both are encoded together, as in training; what the context alone encodes to is its part. Where an ending melts
    into the context's last token, both are encoded apart.
    """
    gap = "" if not context or context[-1].isspace() or ending[0].isspace() else " "
    bare = context.rstrip()
    before, whole = tokenizer.encode(bare), tokenizer.encode(context + gap + ending)
    if whole[: len(before)] == before and len(whole) > len(before):
        return [tokenizer.end_of_text_id, *whole], len(whole) - len(before)
    after = tokenizer.encode(context[len(bare) :] + gap + ending)
    return [tokenizer.end_of_text_id, *before, *after], len(after)
