import pytest
import torch

from torchledger.spec import Recipe
from torchledger.trainer.errors import CheckpointError
from torchledger.trainer.identity import Identity, numerics
from torchledger.trainer.manifest import MANIFEST_NAME, Manifest
from torchledger.trainer.stored import Piece, open_part, read_piece, read_whole, write_parts

WHOLE = torch.arange(12.0).reshape(4, 3)


@pytest.fixture
def halves(tiny, tmp_path):
    """A tensor that two ranks wrote, three rows and one, and its manifest."""
    files = {}
    for rank, (first, last) in enumerate(((0, 3), (3, 4))):
        piece = Piece(WHOLE[first:last], (first, 0), (4, 3))
        files |= write_parts(tmp_path, {"weights/a.b": piece}, rank)
    recipe = Recipe(batch_size=2, sequence_length=8, num_tokens=160)
    manifest = Manifest(1, Identity(tiny, recipe, {}, numerics(torch.device("cpu"))), {}, files)
    (tmp_path / MANIFEST_NAME).write_text(manifest.to_json())
    return tmp_path


def test_pieces_are_put_together(halves):
    """Rows 0 to 2 of one file and row 3 of another are the tensor again, through the manifest on disk."""
    manifest = Manifest.read(halves)
    assert sorted(manifest.files) == ["weights-rank-00000.safetensors", "weights-rank-00001.safetensors"]
    ((name, pieces),) = manifest.pieces("weights").items()
    assert read_whole(open_part(halves, manifest, "weights"), name, pieces).equal(WHOLE)


def test_a_missing_piece_is_no_whole_checkpoint(halves):
    """A manifest with three of a tensor's four rows is refused when it is read, with the count."""
    manifest = Manifest.read(halves)
    files = {name: file for name, file in manifest.files.items() if "00000" in name}
    (halves / MANIFEST_NAME).write_text(manifest.with_files(files).to_json())
    with pytest.raises(CheckpointError, match=r"not whole: of a\.b it has 9 of 12 numbers"):
        Manifest.read(halves)


def test_a_header_that_says_otherwise_is_damage(halves):
    """Another format in the file's header than in the manifest is found, though the bytes are right."""
    path = halves / "weights-rank-00000.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"F32"', b'"I32"'))
    manifest = Manifest.read(halves)
    file_name, stored = manifest.pieces("weights")["a.b"][0]
    with pytest.raises(CheckpointError, match=r"a\.b is int32 \[3, 3\], the manifest says float32 \[3, 3\]"):
        read_piece(open_part(halves, manifest, "weights")[file_name], "a.b", stored)


def test_parts_have_files_of_their_own(tmp_path):
    """Weights and optimizer state of one process are two files, named for what they hold."""
    tensor = torch.ones(2)
    written = write_parts(tmp_path, {"weights/a": Piece.of(tensor), "optimizer/a.exp_avg": Piece.of(tensor)})
    assert {name: list(file.tensors) for name, file in written.items()} == {
        "weights.safetensors": ["a"],
        "optimizer.safetensors": ["a.exp_avg"],
    }
