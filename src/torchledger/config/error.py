"""`ConfigError`: every mistake of a configuration at once; and what to suggest in place of a wrong name."""

from collections.abc import Iterable, Sequence

#: What people call a thing that has another name here, and whose spelling is nearer to something else.
_OTHER_WORDS = {"gpu": "cuda", "nvidia": "cuda", "metal": "mps", "apple": "mps"}


class ConfigError(ValueError):
    """A configuration that cannot be used.

    Attributes:
        source: the file (with the line, if there is only one), or what the configuration is.
        mistakes: one (dotted path, message) per mistake, unknown keys of a table before its fields. The path is empty
            for a mistake of the whole file, such as a syntax error. A message says what is wrong and what to do.
    """

    def __init__(self, source: str, mistakes: Sequence[tuple[str, str]]) -> None:
        self.source = source
        self.mistakes = list(mistakes)
        lines = [f"{path}: {message}" if path else message for path, message in self.mistakes]
        if len(lines) == 1:
            super().__init__(f"{source}: {lines[0]}")
        else:
            super().__init__("\n  ".join([f"{source}: {len(lines)} mistakes", *lines]))


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, or None.

    Beside near spellings it knows initials, which the field uses a lot, and other words for the same thing.

    >>> closest("hiden_size", ["hidden_size", "num_heads"]), closest("lr", ["learning_rate"]), closest("xyz", ["abc"])
    ('hidden_size', 'learning_rate', None)
    >>> closest("gpu", ["cpu", "cuda"])
    'cuda'
    """
    import difflib  # costs 6 ms and is needed only when something is wrong

    plain = name.lower().replace("-", "_")
    by_plain = {candidate.lower().replace("-", "_"): candidate for candidate in known}
    if plain in by_plain:
        return by_plain[plain]
    same = _OTHER_WORDS.get(plain)
    if same in by_plain:
        return by_plain[same]
    near = difflib.get_close_matches(plain, by_plain, n=1, cutoff=0.6)
    if near:
        return by_plain[near[0]]
    initials = [c for c in by_plain if len(plain) > 1 and "".join(word[:1] for word in c.split("_")) == plain]
    return by_plain[initials[0]] if len(initials) == 1 else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a wrong name: the close one, or all that are known."""
    names = list(known)
    close = closest(name, names)
    return f"did you mean {close!r}?" if close is not None else f"known: {', '.join(names)}"
