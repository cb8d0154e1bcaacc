"""A page of JSON with a checksum of itself: without one, a changed digit would be a page as good as any other."""

import re
import zlib

__all__ = ["seal", "seal_fault"]

_SEAL = re.compile(rb',\n "crc32": (\d+)\n}\n$')


def seal(page: str) -> str:
    r"""Put the checksum in as the last line of a JSON object, which ends in a newline and its closing brace.

    >>> print(seal('{\n "step": 3\n}'), end="")
    {
     "step": 3,
     "crc32": 3178777806
    }
    """
    content = page.removesuffix("\n}")
    assert content != page
    return f'{content},\n "crc32": {zlib.crc32(content.encode())}\n}}\n'


def seal_fault(content: bytes, *, is_sealed: bool) -> str:
    """What is wrong with a page that was read, in words; empty where nothing is.

    Args:
        content: the whole file.
        is_sealed: whether pages of its version have a checksum.
    """
    found = _SEAL.search(content)
    if found is None and not is_sealed:
        return ""
    if found is None or not is_sealed or int(found[1]) != zlib.crc32(content[: found.start()]):
        return "its checksum does not match what it says"
    return ""
