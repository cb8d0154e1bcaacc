import numpy as np
import pytest
import torch

from torchledger.trainer.documents import Documents
from torchledger.trainer.loader import Loader, deliver
from torchledger.trainer.tokenfile import TokenFile
from torchledger.trainer.tokenwriter import TokenFileWriter


def write(path, ids, vocab_size, document_length):
    with TokenFileWriter(path, vocab_size=vocab_size, end_of_text_id=None, tokenizer_hash="hash") as out:
        for first in range(0, len(ids), document_length):
            out.write(ids[first : first + document_length])
            out.end_document()
    return TokenFile.open(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Ten windows of 4 in 16 bits, with documents of 3, and five in 32 bits, with documents of 40."""
    folder = tmp_path_factory.mktemp("files")
    return write(folder / "a", range(41), 100, 3), write(folder / "b", range(70_000, 70_021), 80_000, 40)


def test_windows_are_numbered_through(files):
    """Windows 0 to 9 are the first file's, 10 to 14 the second's, in any order and either width of ids."""
    loader = Loader(files, 4, 4, torch.device("cpu"))
    x, y = loader.load(np.array([14, 0, 10, 9]))
    loader.close()
    assert x[:, 0].tolist() == [70_016, 0, 70_000, 36]
    assert torch.equal(y, x + 1)


def test_document_numbers_come_third(files):
    """Where documents are asked for, each row has those of its own file."""
    loader = Loader(files, 4, 4, torch.device("cpu"), [Documents.of(file) for file in files])
    _, _, numbers = loader.load(np.array([10, 0, 1]))
    loader.close()
    assert numbers.tolist() == [[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 1]]  # window 1 is tokens 4, 5 | 6, 7


def test_one_file_and_the_same_file_among_several_agree(files):
    """Reading a file alone gives what reading it as one of two gives."""
    windows = np.array([3, 1, 9])
    alone, among = Loader(files[:1], 3, 4, torch.device("cpu")), Loader(files, 3, 4, torch.device("cpu"))
    for one, other in zip(alone.load(windows), among.load(windows), strict=True):
        assert torch.equal(one, other)
    alone.close()
    among.close()


def test_on_the_cpu_nothing_is_moved(files):
    """A batch for the CPU is handed on as it is."""
    loader = Loader(files, 1, 4, torch.device("cpu"))
    batch = loader.load(np.array([2]))
    loader.close()
    assert deliver(batch, torch.device("cpu")) is batch
