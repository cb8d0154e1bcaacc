import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from torchledger.trainer.errors import CheckpointError
from torchledger.trainer.tensorfile import Shape, TensorFile, write_one_by_one, write_tensors

TENSORS = {
    "bytes": torch.arange(3, dtype=torch.uint8),
    "halves": torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16),
    "scalar": torch.tensor(7.0),
    "turned": torch.arange(6.0).reshape(2, 3).T,  # not as it lies in memory
    "empty": torch.empty(0, 4),
    "eighths": torch.tensor([0.5, 2.0]).to(torch.float8_e4m3fn),
    "truth": torch.tensor([True, False]),
}


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()


def test_the_library_reads_what_is_written(tmp_path):
    """The library's own reader, which checks the whole header, finds every tensor with its format and shape."""
    write_tensors(tmp_path / "a", TENSORS, {"step": "3"})
    read = load_file(tmp_path / "a")
    assert read.keys() == TENSORS.keys()
    assert all(same(read[name], tensor) for name, tensor in TENSORS.items())
    with safe_open(tmp_path / "a", framework="pt") as stream:
        assert stream.metadata() == {"format": "pt", "step": "3"}


def test_it_reads_what_the_library_writes(tmp_path):
    """A file of safetensors' own writer comes back the same."""
    tensors = {name: tensor.contiguous() for name, tensor in TENSORS.items()}
    save_file(tensors, tmp_path / "a")
    file = TensorFile.open(tmp_path / "a")
    assert all(same(file.read(name), tensor) for name, tensor in tensors.items())


def test_every_tensor_begins_where_its_format_may(tmp_path):
    """Wide formats go first, so that no tensor begins at an odd place, whatever the names."""
    write_tensors(tmp_path / "a", TENSORS)
    file = TensorFile.open(tmp_path / "a")
    for name, entry in file.entries.items():
        assert (file.begin + entry["data_offsets"][0]) % TENSORS[name].element_size() == 0


def test_a_sum_is_that_of_the_tensors_bytes(tmp_path):
    """The CRC-32 of the ASCII bytes "123456789" is CBF43926, the check value of the standard."""
    sums = write_tensors(tmp_path / "a", {"digits": torch.tensor(list(b"123456789"), dtype=torch.uint8)})
    assert sums == {"digits": 0xCBF43926}
    assert TensorFile.open(tmp_path / "a").read("digits", 0xCBF43926).tolist() == list(b"123456789")
    with pytest.raises(CheckpointError, match="damaged: its checksum of digits"):
        TensorFile.open(tmp_path / "a").read("digits", 0xCBF43927)


def test_one_at_a_time_makes_the_same_bytes(tmp_path):
    """Whether the tensors are there or made when their turn comes, the file is the same."""
    write_tensors(tmp_path / "a", TENSORS)
    shapes = {name: Shape(tuple(tensor.shape), tensor.dtype) for name, tensor in TENSORS.items()}
    write_one_by_one(tmp_path / "b", shapes, TENSORS.__getitem__)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("kept", [0, 4, 8, 30, -1])
def test_a_cut_file_is_told(tmp_path, kept):
    """Cut in the length, the header or the data: an error that names the file, not a crash."""
    write_tensors(tmp_path / "a", {"x": torch.ones(8)})
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=f"{tmp_path}/a is damaged"):
        TensorFile.open(tmp_path / "a").read("x")


@pytest.mark.parametrize(
    "header", [b"[]", b"{", b'{"x": 3}', b'{"x": {"dtype": "NO", "shape": [], "data_offsets": [0, 0]}}']
)
def test_a_header_that_is_none_is_told(tmp_path, header):
    """JSON that is no header, or no JSON: an error that names the file."""
    (tmp_path / "a").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(CheckpointError, match="is damaged"):
        TensorFile.open(tmp_path / "a").read("x")


def test_a_missing_file_or_tensor_is_told(tmp_path):
    """Not there is an error of ours."""
    with pytest.raises(CheckpointError, match="No such file"):
        TensorFile.open(tmp_path / "a")
    write_tensors(tmp_path / "a", {"x": torch.ones(8)})
    with pytest.raises(CheckpointError, match="damaged: y"):
        TensorFile.open(tmp_path / "a").read("y")


def test_a_pickle_is_never_opened_as_one(tmp_path):
    """A file of torch.save is refused by its header; nothing in it is run."""
    torch.save({"x": torch.ones(8)}, tmp_path / "a")
    with pytest.raises(CheckpointError, match="no safetensors file"):
        TensorFile.open(tmp_path / "a")


def test_what_is_read_is_ones_own(tmp_path):
    """Changing a tensor that was read leaves the file as it is."""
    write_tensors(tmp_path / "a", {"x": torch.ones(8)})
    before = (tmp_path / "a").read_bytes()
    TensorFile.open(tmp_path / "a").read("x").zero_()
    assert (tmp_path / "a").read_bytes() == before
    assert json.loads(before[8 : 8 + int.from_bytes(before[:8], "little")])["x"]["shape"] == [8]
