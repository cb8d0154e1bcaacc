"""Stories as a table of any format, and the documents of what was prepared of them."""

import gzip
import itertools
import json

import pytest

from torchledger.trainer.tokenfile import TokenFile


def texts(path, tokenizer):
    """The documents of a token file, decoded."""
    token_file = TokenFile.open(path, verify=True)
    offsets = token_file.document_offsets().tolist()
    documents = [token_file.read(a, b - a).tolist() for a, b in itertools.pairwise(offsets)]
    assert all(ids[-1] == tokenizer.end_of_text_id for ids in documents)
    return [tokenizer.decode(ids[:-1]) for ids in documents]


def documents(data):
    """All documents of both parts, sorted."""
    return sorted(text for path in (data.train_path, data.validation_path) for text in texts(path, data.tokenizer()))


STORIES = [f"Story {i}:\n" + f"once {i} " * (i % 7 + 1) for i in range(60)]


def write_table(path):
    """The stories as a table of the format that the name says."""
    lines = "".join(json.dumps({"text": text}) + "\n" for text in STORIES).encode()
    match path.suffix:
        case ".jsonl":
            path.write_bytes(lines)
        case ".gz":
            path.write_bytes(gzip.compress(lines))
        case ".zst":
            path.write_bytes(pytest.importorskip("zstandard").compress(lines))
        case ".parquet":
            pytest.importorskip("pyarrow")
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table({"text": STORIES}), path)
    return path
