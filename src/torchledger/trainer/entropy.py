"""Unigram entropy: the loss of a model that knows how often each token occurs and nothing else. Training beats it."""

import numpy as np
from jaxtyping import Int64

from torchledger.trainer.tokenfile import TokenFile, TokenFileError

__all__ = ["unigram_counts", "unigram_cross_entropy", "unigram_entropy"]


def unigram_counts(token_file: TokenFile) -> Int64[np.ndarray, " vocabulary"]:
    """How often each id occurs, streamed in bounded memory.

    Raises:
        TokenFileError: an id beyond the vocabulary, with its position.
    """
    counts, position = np.zeros(token_file.vocab_size, np.int64), 0
    for chunk in token_file.chunks():
        token_file.check_range(chunk, position)
        counts += np.bincount(chunk, minlength=token_file.vocab_size)
        position += len(chunk)
    return counts


def unigram_entropy(data: TokenFile | Int64[np.ndarray, " vocabulary"]) -> float:
    """H(p) = -Σ p ln p in nats, p the observed frequencies (Shannon 1948, section 6).

    >>> round(unigram_entropy(np.array([1, 1])), 6)  # two tokens, equally often: ln 2
    0.693147

    Args:
        data: a token file, or its `unigram_counts`.

    Raises:
        TokenFileError: if there is no token to count.
    """
    counts = unigram_counts(data) if isinstance(data, TokenFile) else data
    seen = counts[counts > 0].astype(np.float64)
    if len(seen) == 0:
        raise TokenFileError("the entropy of no tokens at all is undefined")
    p = seen / seen.sum()
    return max(0.0, float(-(p * np.log(p)).sum()))  # a single kind of token gives -0.0


def unigram_cross_entropy(
    counts: Int64[np.ndarray, " vocabulary"], model_counts: Int64[np.ndarray, " vocabulary"]
) -> float:
    """-Σ q ln p in nats: the loss on tokens counted as `counts` of the unigram model fitted to `model_counts`.

    The model is smoothed by one (Laplace): p = (count + 1) / (total + vocabulary), so that an id it never saw costs
    much, but not infinitely much.

    Raises:
        TokenFileError: if there is no token to predict, or the vocabularies differ in size.
    """
    if counts.shape != model_counts.shape:
        raise TokenFileError(f"two vocabularies cannot be compared: {len(counts):,} and {len(model_counts):,} ids")
    if counts.sum() == 0:
        raise TokenFileError("the entropy of no tokens at all is undefined")
    q = counts / counts.sum()
    p = (model_counts + 1) / (model_counts.sum() + len(model_counts))
    return float(-(q * np.log(p)).sum())
