import math

import pytest
import torch

from torchledger.spec import Recipe
from torchledger.trainer.choices import answer, encode_ending
from torchledger.trainer.init import initialize
from torchledger.trainer.model import build
from torchledger.trainer.questions import Question
from torchledger.trainer.tokenizer import ByteTokenizer

BYTES = ByteTokenizer()
RECIPE = Recipe(batch_size=1, sequence_length=32)


@pytest.fixture
def model(tiny):
    model = build(tiny, attention="math", sequence_length=32)
    initialize(model, "fan_in", 0)
    return model


@torch.no_grad()
def by_hand(model, context, ending):
    """Σ ln p of the ending's bytes, read off the logits of the whole text."""
    before, after = [256, *context.encode()], list(f" {ending}".encode())
    logits = model(torch.tensor([before + after]))[0].log_softmax(-1)
    return sum(logits[len(before) + i - 1, token].item() for i, token in enumerate(after))


def test_the_answer_is_the_likeliest_ending(model):
    """Scores by hand decide: the questions whose label is the best ending are right, whole and for length."""
    endings = ("it", "a longer one", "yes")
    scores = [by_hand(model, "so", each) for each in endings]
    whole = scores.index(max(scores))
    lengths = [score / len(each) for score, each in zip(scores, endings, strict=True)]
    for_length = lengths.index(max(lengths))
    assert whole != for_length, "the example shall tell both apart"
    found = answer(model, BYTES, tuple(Question("so", endings, label) for label in range(3)), RECIPE)
    assert (found.num_questions, found.num_right, found.num_right_normalized) == (3, 1, 1)
    assert found.chance == pytest.approx(1 / 3)
    assert answer(model, BYTES, (Question("so", endings, whole),), RECIPE).plain == 1
    assert answer(model, BYTES, (Question("so", endings, for_length),), RECIPE).normalized == 1


def test_a_model_that_knows_gets_everything_right(model):
    """Trained on one sentence, it prefers its end to any other of the same length."""
    ids = torch.tensor([[256, *b"the sky is blue"]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        model(ids[:, :-1], ids[:, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()
    found = answer(model, BYTES, (Question("the sky is", ("pink", "blue", "gray"), 1),), RECIPE)
    assert (found.plain, found.normalized) == (1, 1)


def test_nothing_of_training_is_touched(model):
    """No gradient, no random number; the model is in training mode afterwards."""
    before = torch.get_rng_state()
    answer(model, BYTES, (Question("a", ("b", "c"), 0),), RECIPE)
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)
    assert all(p.grad is None for p in model.parameters())


def test_told_to_stop_there_is_no_answer(model):
    """Half of the endings are no result."""
    answers = iter([False, True])
    assert answer(model, BYTES, (Question("a", ("b", "c"), 0),), RECIPE, stop=lambda: next(answers)) is None


def test_what_is_too_long_loses_its_beginning(model):
    """A context of a hundred bytes and its last ones give the same answer where the model sees 32."""
    endings = ("b", "c")
    long, short = (
        answer(model, BYTES, (Question(text, endings, 0),), RECIPE) for text in ("x" * 68 + "y" * 40, "y" * 40)
    )
    assert long == short
    assert answer(model, BYTES, (Question("a", ("b" * 100, "c"), 1),), RECIPE) is not None


@pytest.mark.parametrize(
    ("context", "ending", "ids"),
    [("a", "b", b"a b"), ("a ", "b", b"a b"), ("a", " b", b"a b"), ("", "b", b"b"), ("a\n", "b", b"a\nb")],
)
def test_context_and_ending_have_one_gap(context, ending, ids):
    """A space is put between where neither side has white space; it belongs to the ending."""
    assert encode_ending(BYTES, context, ending) == ([256, *ids], len(ids) - len(context.strip()))


class Melting:
    """A tokenizer in which "a b" is one token."""

    end_of_text_id = 9

    def encode(self, text):
        """Three texts are known."""
        return {"a": [1], "a b": [3], " b": [2]}[text]


def test_an_ending_that_melts_into_the_context_is_encoded_apart():
    """Else nothing would be left to score."""
    assert encode_ending(Melting(), "a", "b") == ([9, 1, 2], 1)


def test_a_mean_over_nothing_never_comes_up(model):
    """An empty context leaves the end-of-text token to predict from."""
    found = answer(model, BYTES, (Question("", ("b", "c"), 0),), RECIPE)
    assert math.isfinite(found.plain)
