"""What a preparation would write over: data prepared from something else, and files that are nobody's of ours."""

import json
from pathlib import Path
from typing import Any

from torchledger.trainer.prepared import (
    SOURCES_NAME,
    SUMMARY_NAME,
    TOKENIZER_NAME,
    TRAIN_NAME,
    VALIDATION_NAME,
    PrepareError,
)
from torchledger.trainer.unfinished import NAME as UNFINISHED_NAME

__all__ = ["require_free"]

_REMEDY = "choose another folder, or replace it with --force"


def require_free(folder: Path, inputs_hash: str, sources_sha256: str) -> None:
    """Refuse a folder whose files a preparation of these inputs would silently replace.

    What was prepared or begun from the same inputs is its own, whole or not; a page that cannot be read says nothing of
    data that can be used, and is no reason.

    Args:
        folder: where to write; it need not be there.
        inputs_hash: of all that the new preparation depends on.
        sources_sha256: of its text alone.

    Raises:
        PrepareError: what is there, and what to do.
    """
    if (folder / SUMMARY_NAME).exists():
        earlier = _page(folder / SUMMARY_NAME)
        if earlier is not None and "inputs_hash" not in earlier:
            raise PrepareError(f"{folder} has a {SUMMARY_NAME} in it that `prepare` did not write; {_REMEDY}")
        if earlier is not None and earlier["inputs_hash"] != inputs_hash:
            is_same = earlier.get("sources_sha256") == sources_sha256
            why = "the same text, prepared otherwise" if is_same else "of other text, or of what this was before"
            raise PrepareError(f"{folder} has prepared data in it already ({_told(earlier)}): {why}; {_REMEDY}")
        return
    if (folder / UNFINISHED_NAME).exists():
        begun = _page(folder / UNFINISHED_NAME)
        if begun is not None and begun.get("inputs_hash", inputs_hash) != inputs_hash:
            raise PrepareError(f"{folder} has another preparation in it, which is not finished; {_REMEDY}")
        return
    names = (TRAIN_NAME, VALIDATION_NAME, TOKENIZER_NAME, SOURCES_NAME)
    foreign = [name for name in names if (folder / name).exists()]
    if foreign:
        raise PrepareError(
            f"{folder} has {', '.join(foreign)} in it and no {SUMMARY_NAME}: nothing that `prepare` made whole, and it "
            f"would be written over; {_REMEDY}"
        )


def _page(path: Path) -> dict[str, Any] | None:
    """The table of a page; nothing where it is damaged."""
    try:
        row = json.loads(path.read_bytes().decode("utf-8"))
    except (OSError, ValueError):
        return None
    return row if isinstance(row, dict) else None


def _told(earlier: dict[str, Any]) -> str:
    """What a page says that it is of, as far as it does."""
    train = earlier.get("train")
    tokens = train.get("num_tokens") if isinstance(train, dict) else None
    amount = f", {tokens:,} tokens to train on" if isinstance(tokens, int) else ""
    kind, size = earlier.get("tokenizer_kind"), earlier.get("vocab_size")
    return f"{earlier.get('source')}: {kind} tokenizer of {size} tokens{amount}"
