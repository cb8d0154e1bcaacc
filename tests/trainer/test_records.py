import gzip
import json

import pytest

from torchledger.trainer import records as room
from torchledger.trainer.containers import SourceError, format_of
from torchledger.trainer.records import records, sha256_of

TEXTS = ["one", "two\nlines", "", "ü € 𝄞", "five"]


def read(path, field="text"):
    return [text for text, _ in records(path, format_of(path.name), field, sha256_of(path))]


def write_lines(path, lines, new=b"\n"):
    data = new.join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.json.gz"])
@pytest.mark.parametrize("new", [b"\n", b"\r\n", b"\n\n"])
@pytest.mark.parametrize("size", [7, 1 << 20])
def test_lines_of_json(tmp_path, monkeypatch, name, new, size):
    """Each line's field is a text, whatever ends lines and wherever blocks end; empty lines are none."""
    real = room.blocks
    monkeypatch.setattr(room, "blocks", lambda path, form, digest: real(path, form, digest, size))
    path = write_lines(tmp_path / name, [{"id": i, "text": text} for i, text in enumerate(TEXTS)], new)
    assert read(path) == TEXTS


def test_marks_nulls_and_half_characters(tmp_path):
    """A byte order mark is no text, null is an empty one, half a surrogate pair becomes U+FFFD."""
    path = write_lines(tmp_path / "x.jsonl", [b'\xef\xbb\xbf{"text": "a"}', {"text": None}, b'{"text": "x\\ud800"}'])
    assert read(path) == ["a", "", "x\ufffd"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", r"x\.jsonl, line 2 is not JSON"),
        (b"[1]", "line 2 is not an object"),
        ({"content": "a", "id": 3}, r"no field 'text'; its fields: content, id \(--text-field names another\)"),
        ({"text": 5}, "field 'text' is no text but int"),
        (b'{"text": "\xff"}', r"line 2 is not UTF-8 \(byte 10\)"),
        (b"[" * 100_000, "line 2 is not JSON"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path, line, message):
    """What is wrong with a line, and which it is."""
    with pytest.raises(SourceError, match=message):
        read(write_lines(tmp_path / "x.jsonl", [{"text": "fine"}, line]))


def test_a_line_without_end(tmp_path, monkeypatch):
    """A file that is one endless line is refused before memory is full."""
    monkeypatch.setattr(room, "LONGEST_LINE_BYTES", 10)
    with pytest.raises(SourceError, match="a line of more than 10 bytes"):
        read(write_lines(tmp_path / "x.jsonl", [{"text": "far too long"}]))


def test_another_field(tmp_path):
    """The field that is asked for is taken."""
    assert read(write_lines(tmp_path / "x.jsonl", [{"text": "a", "content": "b"}]), "content") == ["b"]


def test_a_changed_file_is_noticed(tmp_path):
    """A file that is not what was hashed is refused once it is read through."""
    path = write_lines(tmp_path / "x.jsonl", [{"text": "a"}])
    with pytest.raises(SourceError, match="has changed while it was being prepared"):
        list(records(path, format_of(path.name), "text", "0" * 64))
    path.unlink()
    with pytest.raises(SourceError, match=r"cannot read .* any more"):
        list(records(path, format_of(path.name), "text", "0" * 64))


def test_shares_grow_to_one(tmp_path):
    """How much is read never falls, and ends with all."""
    path = write_lines(tmp_path / "x.jsonl.gz", [{"text": str(i)} for i in range(50)])
    shares = [share for _, share in records(path, format_of(path.name), "text", sha256_of(path))]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def write_table(path, columns, *, stream=True):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=2)
        return path
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(str(path), table.schema) as out:
        out.write_table(table, max_chunksize=2)
    return path


@pytest.mark.parametrize(("name", "stream"), [("x.parquet", True), ("x.arrow", True), ("x.arrow", False)])
def test_tables(tmp_path, name, stream):
    """Rows of Parquet, of Arrow streams (which `datasets` writes) and of Arrow files are texts, null an empty one."""
    pytest.importorskip("pyarrow")
    path = write_table(tmp_path / name, {"id": [1, 2, 3, 4, 5], "text": ["a", "b", None, "ü", ""]}, stream=stream)
    assert read(path) == ["a", "b", "", "ü", ""]


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
def test_tables_that_have_no_texts(tmp_path, name):
    """A missing column is told with those there are, one of numbers with its type, and rubbish as damaged."""
    pytest.importorskip("pyarrow")
    path = write_table(tmp_path / name, {"id": [1], "content": ["a"]})
    with pytest.raises(SourceError, match="no column 'text'; its columns: id, content"):
        read(path)
    with pytest.raises(SourceError, match="column 'id' is no text but int64"):
        read(path, "id")
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"rubbish"):
        path.write_bytes(content)
        with pytest.raises(SourceError, match="is damaged, or no"):
            read(path, "content")
