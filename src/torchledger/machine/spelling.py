"""How a chip's name is read: which words it has, which of them may be left unexplained, and where a count stands."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchledger.machine.chip import Chip

_MARKS = re.compile(r"\((?:r|tm|c)\)|@.*$")  # "Intel(R) Xeon(R) ... CPU @ 2.00GHz"
_CORES = re.compile(r"(\d+)[ -]cores?\b")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(gib|gb|g)\b")
# letters of other alphabets are letters, and so are signs that are in no name: nothing is called `hé100` or `h!100`;
# dashes, brackets and the like stand between words
_WORD = re.compile(r"(?:[a-z0-9.+!?#$%^&~=|<>;\"'`\\{}]|[^\x00-\x7f\s®™©℠×·\u2010-\u2015\u2212])+")
_SIZE_WORD = re.compile(r"(\d+(?:\.\d+)?)(gib|gb)")

# A driver never reports more than the printed number of GiB, and keeps at most a tenth for itself and for ECC:
# a T4 sold as 16 GB shows 14.56 GiB to torch, an H100 sold as 80 GB 81,559 MiB to nvidia-smi.
_LEAST_SHARE_REPORTED = 0.9


def words(text: str) -> tuple[str, ...]:
    """The words of a name in lower case; sizes and core counts become one word each.

    >>> words("NVIDIA A100-SXM4-80GB")
    ('nvidia', 'a100', 'sxm4', '80gb')
    >>> words("H100 95.04 GiB"), words("GH200 144G HBM3e"), words("Intel(R) Xeon(R) Platinum 8480+")
    (('h100', '95.04gib'), ('gh200', '144gb', 'hbm3e'), ('intel', 'xeon', 'platinum', '8480+'))
    >>> words("hé100"), words("日 H100™"), words("h!100"), words("A100_80GB [PCIe]")
    (('hé100',), ('日', 'h100'), ('h!100',), ('a100', '80gb', 'pcie'))
    """
    text = _MARKS.sub(" ", text.lower())
    text = _CORES.sub(r"\1core", text)
    text = _SIZE.sub(lambda size: size[1] + ("gib" if size[2] == "gib" else "gb"), text)
    return tuple(_WORD.findall(text))


def joined(text: str) -> str:
    """The name as the catalog's index holds it: without anything between its words.

    >>> joined("RTX 4090") == joined("rtx-4090") == joined("RTX4090")
    True
    """
    return "".join(words(text))


# Words that may stand in a name without saying more: for everybody, and for one vendor's chips.
_EMPTY_WORDS = frozenset(("gpu", "cpu", "tpu", "accelerator", "processor", "tensor", "core", "chip", "soc", "per"))
_VENDOR_WORDS = {
    "NVIDIA": frozenset(("nvidia", "tesla", "geforce", "quadro")),
    "AMD": frozenset(("amd", "instinct", "radeon")),
    "Google": frozenset(("google", "cloud")),
    "AWS": frozenset(("aws", "amazon", "neuron")),
    "Intel": frozenset(("intel", "habana")),
}


def explains(chip: Chip, rest: tuple[str, ...]) -> bool:
    """Whether every word that a name has beside the alias says something true of the chip, or nothing.

    So "laptop" in "RTX 4090 Laptop GPU" or "ti" in "RTX 3090 Ti" makes it another chip, and "80gb" must be its memory.

    Args:
        chip: what the alias stands for.
        rest: the other words of the name.
    """
    empty = _EMPTY_WORDS | _VENDOR_WORDS.get(chip.vendor, frozenset((chip.vendor.lower(),)))
    return all(word in empty or _is_true_of(chip, word) for word in rest)


def _is_true_of(chip: Chip, word: str) -> bool:
    form = joined(chip.form_factor)
    said = {joined(chip.memory_kind or ""), form, form.rstrip("0123456789")}
    if chip.tdp_w is not None:
        said.add(f"{chip.tdp_w:g}w")
    if chip.num_cores is not None:
        said.add(f"{chip.num_cores}core")
    if word in said:
        return True
    size = _SIZE_WORD.fullmatch(word)
    if size is None or chip.memory_bytes_nominal is None:
        return False
    if size[2] == "gb":
        return float(size[1]) * 1e9 == chip.memory_bytes_nominal
    return could_report(chip, float(size[1]) * 2**30)


def could_report(chip: Chip, memory_bytes: float) -> bool:
    """Whether a device of this chip could show this much memory.

    True as well where the row cannot tell: unknown memory, a CPU, unified memory (sold in many sizes).
    """
    if chip.memory_bytes_nominal is None or chip.memory_is_unified or chip.kind == "cpu":
        return True
    printed_gib = chip.memory_bytes_nominal / 1e9 / chip.devices_per_chip
    return _LEAST_SHARE_REPORTED * printed_gib <= memory_bytes / 2**30 <= printed_gib


_COUNT = r"\d[\d_,.]*[km]?"
_COUNT_FIRST = re.compile(rf"({_COUNT})(?:\s*[x×*]\s*|\s+)(\S.*)", re.IGNORECASE)
_COUNT_LAST = re.compile(rf"(\S.*?)\s*[x×*:]\s*({_COUNT})", re.IGNORECASE)
_COUNT_AFTER_X = re.compile(rf"(\S.*?x)({_COUNT})", re.IGNORECASE)


def splits(text: str) -> Iterator[tuple[str, str]]:
    """Every way to read a text as a chip's name and a count, both as text; the caller knows which names exist.

    >>> list(splits("8xh100"))
    [('h100', '8')]
    >>> list(splits("mi300x8"))  # the x of MI300X, or the one between name and count
    [('mi300', '8'), ('mi300x', '8')]
    """
    text = text.strip()
    if last := _COUNT_LAST.fullmatch(text):
        yield last[1], last[2]
    if after_x := _COUNT_AFTER_X.fullmatch(text):
        yield after_x[1], after_x[2]
    if first := _COUNT_FIRST.fullmatch(text):
        yield first[2], first[1]
