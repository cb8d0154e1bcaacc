"""Files of multiple-choice questions, as in HellaSwag: a context, endings, and which of them is right."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ChoicesError", "Question", "read_questions"]

SHOWN_MISTAKES = 5


class ChoicesError(ValueError):
    """A file of questions that cannot be used; the message names lines and what is wrong in them."""


@dataclass(frozen=True, slots=True)
class Question:
    """A text and several ways to go on.

    Attributes:
        context: the text, as it is.
        endings: at least two ways to go on; where neither side has white space, one space is put between.
        label: which of them is right, from 0.
    """

    context: str
    endings: tuple[str, ...]
    label: int


def read_questions(path: Path) -> tuple[Question, ...]:
    """Questions of a JSON-lines file, each row with `context` (or HellaSwag's `ctx`), `endings` and `label`.

    Raises:
        ChoicesError: it cannot be read, is empty, or rows are wrong; the first five are named, with what is wrong.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise ChoicesError(f"cannot read the questions {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ChoicesError(f"the questions {path} are not UTF-8 from byte {error.start} on") from error
    questions, mistakes = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            questions.append(_question(json.loads(line)))
        except ValueError as error:
            mistakes.append(f"\n  line {number}: {error}")
    if mistakes:
        more = f"\n  and {len(mistakes) - SHOWN_MISTAKES} more" if len(mistakes) > SHOWN_MISTAKES else ""
        raise ChoicesError(f"the questions {path} cannot be used:{''.join(mistakes[:SHOWN_MISTAKES])}{more}")
    if not questions:
        raise ChoicesError(f"there is no question in {path}")
    return tuple(questions)


def _question(row: Any) -> Question:
    if not isinstance(row, Mapping):
        raise ChoicesError("is no object with context, endings and label")
    context, endings, label = row.get("context", row.get("ctx")), row.get("endings"), row.get("label")
    if not isinstance(context, str):
        raise ChoicesError("context (or ctx) must be a text")
    if not isinstance(endings, list) or len(endings) < 2 or not all(isinstance(each, str) and each for each in endings):
        raise ChoicesError("endings must be a list of at least two texts, none of them empty")
    if isinstance(label, str) and label.isdecimal():  # as published files of HellaSwag have it
        label = int(label)
    if not isinstance(label, int) or isinstance(label, bool) or not 0 <= label < len(endings):
        raise ChoicesError(f"label must be 0 to {len(endings) - 1}, is {label!r}")
    return Question(context, tuple(endings), label)
