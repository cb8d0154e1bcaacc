import json

import pytest

from torchledger.trainer.sealed import seal, seal_fault

PAGE = json.dumps({"schema": "x/2", "step": 6, "loss": 4.25}, indent=1)
SEALED = seal(PAGE).encode()


def test_a_sealed_page_is_json_and_whole():
    """The checksum is one more field, and it fits."""
    assert set(json.loads(SEALED)) == {*json.loads(PAGE), "crc32"}
    assert seal_fault(SEALED, is_sealed=True) == ""
    assert seal_fault((PAGE + "\n").encode(), is_sealed=False) == ""


@pytest.mark.parametrize("bit", range(8))
def test_every_changed_bit_is_found(bit):
    """Each of the eight bits of each byte, in the page, in its checksum and in what is between."""
    for place in range(len(SEALED)):
        changed = bytearray(SEALED)
        changed[place] ^= 1 << bit
        assert seal_fault(bytes(changed), is_sealed=True), (place, bit)


def test_a_page_says_by_its_version_whether_it_is_sealed():
    """A sealed page that claims to be of the version without is as damaged as an open one that claims to be sealed."""
    assert seal_fault(SEALED, is_sealed=False)
    assert seal_fault(PAGE.encode(), is_sealed=True)
