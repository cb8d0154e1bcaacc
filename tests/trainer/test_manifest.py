import json

import pytest
import torch

from torchledger.spec import Recipe
from torchledger.trainer.errors import CheckpointError
from torchledger.trainer.identity import Identity, numerics
from torchledger.trainer.manifest import Manifest, StoredFile, StoredTensor, checksum


@pytest.fixture
def folder(tiny, tmp_path):
    """A checkpoint with one file of five bytes."""
    (tmp_path / "weights").write_bytes(b"12345")
    file = StoredFile(5, {"a": StoredTensor((1,), "float32", 7, (0,), (1,))}, checksum(tmp_path / "weights"))
    recipe = Recipe(batch_size=2, sequence_length=8, num_tokens=160)
    identity = Identity(tiny, recipe, {}, numerics(torch.device("cpu")))
    (tmp_path / "manifest.json").write_text(Manifest(3, identity, {"loss": 1.5}, {"weights": file}).to_json())
    return tmp_path


def test_it_reads_back(folder):
    """Step, metrics, identity and files come back as they were written."""
    manifest = Manifest.read(folder)
    assert (manifest.step, manifest.metrics) == (3, {"loss": 1.5})
    assert manifest.identity.recipe.num_tokens == 160
    assert manifest.files["weights"].crc32 == 0xCBF53A1C  # CRC-32 of "12345"


def test_it_states_position_horizon_and_random_streams(folder):
    """The page says where the run stands, how long it is, and what each random stream is a function of."""
    row = json.loads((folder / "manifest.json").read_text())
    assert (row["step"], row["next_batch"], row["num_steps"], row["tokens_seen"]) == (3, 3, 160 // 16, 3 * 16)
    assert row["streams"]["seed"] == 1337
    assert {"initialization", "order", "dropout", "sample"} < set(row["streams"])
    assert row["numerics"]["num_threads"] == torch.get_num_threads()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no checkpoint at .*manifest.json is missing"),
        ("{", "damaged or of another version"),
        ("{}", "damaged or of another version"),
        ('{"schema": "torchledger.checkpoint/9"}', "torchledger.checkpoint/9"),
    ],
)
def test_what_is_no_manifest_is_told(folder, content, message):
    """Missing, cut, empty or later pages are told apart."""
    if content is None:
        (folder / "manifest.json").unlink()
    else:
        (folder / "manifest.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        Manifest.read(folder)


def test_a_missing_or_short_file_is_named(folder):
    """A checkpoint whose file is shorter than the manifest says, or gone, is not whole."""
    (folder / "weights").write_bytes(b"1234")
    with pytest.raises(CheckpointError, match="weights has 4 bytes instead of 5"):
        Manifest.read(folder)
    (folder / "weights").unlink()
    with pytest.raises(CheckpointError, match="weights is missing"):
        Manifest.read(folder)
