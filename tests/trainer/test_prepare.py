import gzip
import hashlib
import json
import math
import os
import signal
import subprocess
import sys

import pytest
from prepared_stories import STORIES, documents, texts, write_table

from torchledger.trainer import encoding
from torchledger.trainer import prepare as room
from torchledger.trainer.entropy import unigram_counts, unigram_cross_entropy, unigram_entropy
from torchledger.trainer.locks import alone
from torchledger.trainer.prepare import prepare
from torchledger.trainer.prepared import PrepareError, load_prepared
from torchledger.trainer.tokenfile import TokenFile
from torchledger.trainer.tokenizer import END_OF_TEXT, has_tokenizers, save_tokenizer, train_bpe

bpe_only = pytest.mark.skipif(not has_tokenizers(), reason="needs the tokenizers library")


@pytest.fixture
def source(tmp_path):
    """Twelve small programs."""
    folder = tmp_path / "text"
    folder.mkdir()
    for i in range(12):
        (folder / f"{i:02}.py").write_text(f"def function_{i}(x):\n    return x + {i}\n" * 9)
    return folder


@pytest.mark.parametrize("tokenizer", ["bytes", pytest.param("bpe", marks=bpe_only)])
def test_every_file_is_in_exactly_one_part(source, tmp_path, tokenizer):
    """The documents of both token files together are the files, each once: nothing lost, changed or in both."""
    data = prepare(source, tmp_path / "out", tokenizer=tokenizer, vocab_size=300)
    train, validation = (texts(path, data.tokenizer()) for path in (data.train_path, data.validation_path))
    files = [path.read_text() for path in sorted(source.iterdir())]
    assert sorted(train + validation) == sorted(files)
    assert not set(train) & set(validation)
    assert len(validation) == data.validation.num_documents >= 1
    assert data.train.num_bytes + data.validation.num_bytes == sum(map(len, files))


def test_the_split_is_recorded(source, tmp_path):
    """sources.json lists every file with its hash and its part, and what was skipped and why."""
    (source / "picture.png").write_bytes(b"\0")
    data = prepare(source, tmp_path / "out", tokenizer="bytes")
    row = json.loads((data.folder / "sources.json").read_text())
    assert [file["name"] for file in row["files"]] == [f"{i:02}.py" for i in range(12)]
    assert row["files"][3]["sha256"] == hashlib.sha256((source / "03.py").read_bytes()).hexdigest()
    assert sum(file["validation"] for file in row["files"]) == data.validation.num_documents
    assert row["skipped"] == [{"name": "picture.png", "reason": "binary (it has NUL bytes)"}]
    assert (data.num_files, data.num_skipped) == (12, 1)


def test_numbers_by_hand(tmp_path):
    """Files `aab` and `b` in bytes: a, a, b, end and b, end. The entropies are those counts' arithmetic."""
    source = tmp_path / "text"
    source.mkdir()
    (source / "one").write_text("aab")
    (source / "two").write_text("b")
    data = prepare(source, tmp_path / "out", tokenizer="bytes")
    assert sorted([data.train.num_tokens, data.validation.num_tokens]) == [2, 4]
    # all six tokens: a twice, b twice, end twice
    assert data.unigram_entropy_nats == pytest.approx(math.log(3), abs=1e-15)
    longer, shorter = sorted([data.train, data.validation], key=lambda part: -part.num_tokens)
    assert longer.unigram_entropy_nats == pytest.approx(1.5 * math.log(2), abs=1e-15)  # 2 of 4, and twice 1 of 4
    assert shorter.unigram_entropy_nats == pytest.approx(math.log(2), abs=1e-15)
    assert (longer.bytes_per_token, shorter.bytes_per_token) == (3 / 4, 1 / 2)


def test_entropies_are_those_of_the_files(source, tmp_path):
    """The recorded entropies are what the token files give."""
    data = prepare(source, tmp_path / "out", tokenizer="bytes")
    train, validation = (unigram_counts(TokenFile.open(p)) for p in (data.train_path, data.validation_path))
    assert data.train.unigram_entropy_nats == unigram_entropy(train)
    assert data.unigram_entropy_nats == unigram_entropy(train + validation)
    assert data.validation_unigram_loss_nats == unigram_cross_entropy(validation, train)


def test_an_identical_preparation_is_reused(source, tmp_path, monkeypatch):
    """The same inputs are not worked on twice."""
    first = prepare(source, tmp_path / "out", tokenizer="bytes")
    assert not first.reused

    def work(*arguments):
        raise AssertionError("worked again")

    monkeypatch.setattr(room, "_make_tokenizer", work)
    again = prepare(source, tmp_path / "out", tokenizer="bytes")
    assert again.reused
    assert again.to_dict() == first.to_dict()


@pytest.mark.parametrize("change", [{"seed": 1}, {"validation_fraction": 0.5}, {"text": "changed"}, {"missing": True}])
def test_any_other_input_is_prepared_anew(source, tmp_path, change):
    """Another seed, fraction or text, or a lost file, and the work is done."""
    first = prepare(source, tmp_path / "out", tokenizer="bytes")
    if "text" in change:
        (source / "00.py").write_text(change.pop("text"))
    if change.pop("missing", False):
        first.train_path.unlink()
    again = prepare(source, tmp_path / "out", tokenizer="bytes", replacing=True, **change)
    assert not again.reused
    assert load_prepared(tmp_path / "out") == again


@bpe_only
def test_preparing_is_deterministic(source, tmp_path):
    """Two folders prepared from one source hold the same bytes."""
    for name in ("one", "two"):
        prepare(source, tmp_path / name, vocab_size=280)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


@bpe_only
def test_the_tokenizer_never_sees_validation_text(source, tmp_path):
    """The tokenizer is trained on the training files alone."""
    data = prepare(source, tmp_path / "out", vocab_size=300)
    row = json.loads((data.folder / "sources.json").read_text())
    train = [(source / file["name"]).read_text() for file in row["files"] if not file["validation"]]
    assert data.tokenizer_hash == train_bpe(train, 300).hash


@bpe_only
def test_a_small_text_gives_fewer_tokens_and_says_so(source, tmp_path):
    """A vocabulary larger than the text can fill is cut to what it fills, and the assumption is stated."""
    data = prepare(source, tmp_path / "out", vocab_size=5000)
    assert data.vocab_size < 5000
    assert data.assumptions == (f"the text gave {data.vocab_size} tokens, fewer than the 5000 asked for",)


@bpe_only
def test_a_published_tokenizer(source, tmp_path):
    """A tokenizer given as a file is used and copied as it is."""
    save_tokenizer(train_bpe(["some other text"] * 9, 270), tmp_path / "theirs.json")
    data = prepare(source, tmp_path / "out", tokenizer=tmp_path / "theirs.json")
    assert data.tokenizer_path.read_bytes() == (tmp_path / "theirs.json").read_bytes()


def test_without_the_library_bytes_are_taken_and_said(source, tmp_path, monkeypatch):
    """Without the tokenizers library a BPE preparation becomes one of bytes, which its assumptions state."""
    monkeypatch.setattr(room, "has_tokenizers", lambda: False)
    data = prepare(source, tmp_path / "out")
    assert (data.tokenizer_kind, data.vocab_size) == ("bytes", 257)
    assert "not installed" in data.assumptions[0]


def test_a_single_file_is_cut_at_a_line(tmp_path):
    """A single file without marks gives its end for validation, from a line's start, and says so."""
    path = tmp_path / "book.txt"
    path.write_text("".join(f"line {i:03}\n" for i in range(100)))
    data = prepare(path, tmp_path / "out", tokenizer="bytes", validation_fraction=0.1)
    (train,), (validation,) = (texts(p, data.tokenizer()) for p in (data.train_path, data.validation_path))
    assert train + validation == path.read_text()
    assert validation.startswith("line 090\n")
    assert data.split == "the last 0.1 of the file, from a line's start"


def test_a_file_of_documents_is_split_by_them(tmp_path):
    """A single file with end-of-text marks is split by documents, the marks becoming end-of-text ids."""
    path = tmp_path / "stories.txt"
    stories = [f"Once upon a time, {i}.\n" for i in range(100)]
    path.write_text(END_OF_TEXT.join(stories))
    data = prepare(path, tmp_path / "out", tokenizer="bytes", validation_fraction=0.3)
    train, validation = (texts(p, data.tokenizer()) for p in (data.train_path, data.validation_path))
    assert sorted(train + validation) == sorted(stories)
    assert 1 < len(validation) < 60


def test_progress(source, tmp_path):
    """Every stage counts bytes up to all of them, never backwards."""
    events = []
    prepare(source, tmp_path / "out", tokenizer="bytes", progress=lambda *event: events.append(event))
    total = sum(path.stat().st_size for path in source.iterdir())
    for what in ("reading", "encoding"):
        done = [event[0] for event in events if event[2] == what]
        assert done == sorted(done)
        assert done[-1] == total
    assert {event[1] for event in events} == {total}


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 2, math.nan])
def test_fraction_out_of_range(source, tmp_path, fraction):
    """The validation fraction lies between 0 and 1."""
    with pytest.raises(PrepareError, match="above 0 and below 1"):
        prepare(source, tmp_path / "out", validation_fraction=fraction)


def test_mistakes_are_named(source, tmp_path):
    """No source, a vocabulary too small, a tokenizer that is not there, and a result over its source: each is said."""
    (tmp_path / "tiny").write_text("x")
    mistakes = [
        ("no file or folder", (tmp_path / "no", tmp_path / "out"), {}),
        ("at least 257", (source, tmp_path / "out"), {"vocab_size": 256}),
        ("cannot read the tokenizer", (source, tmp_path / "out"), {"tokenizer": tmp_path / "no.json"}),
        ("too little text", (tmp_path / "tiny", tmp_path / "out"), {"tokenizer": "bytes"}),
        ("would overwrite the source", (source, source), {}),
        ("would overwrite the source", (source / "prepare.json", source), {}),
        ("cannot write to", (source, source / "00.py"), {"tokenizer": "bytes"}),
    ]
    for message, arguments, options in mistakes:
        with pytest.raises(PrepareError, match=message):
            prepare(*arguments, **options)


def test_failure_leaves_the_earlier_preparation(source, tmp_path, monkeypatch):
    """An interruption in the middle leaves the data prepared before whole."""
    first = prepare(source, tmp_path / "out", tokenizer="bytes")

    def interrupt(*event):
        if event[2] == "encoding":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(source, tmp_path / "out", tokenizer="bytes", seed=5, replacing=True, progress=interrupt)
    assert load_prepared(tmp_path / "out") == first
    assert not list((tmp_path / "out").glob(".*"))


def test_a_damaged_preparation_is_made_anew(source, tmp_path):
    """Data whose bytes have changed is not taken for an identical preparation, though its size and header are right."""
    first = prepare(source, tmp_path / "out", tokenizer="bytes")
    whole = first.train_path.read_bytes()
    first.train_path.write_bytes(whole[:4096] + bytes([whole[4096] ^ 1]) + whole[4097:])
    again = prepare(source, tmp_path / "out", tokenizer="bytes")
    assert not again.reused
    assert again.train_path.read_bytes() == whole


def test_a_vocabulary_beyond_the_text_takes_no_memory(source, tmp_path):
    """More tokens than any text can give are asked for in vain, and are not set aside memory for."""
    data = prepare(source, tmp_path / "out", vocab_size=10**12)
    assert 257 <= data.vocab_size < 10**6
    assert any("fewer than the 1000000000000 asked for" in line for line in data.assumptions)


KILLED = """
import os, signal, sys
from pathlib import Path
from torchledger.trainer import prepare as room
def kill(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(room, sys.argv[3], kill)
room.prepare(Path(sys.argv[1]), Path(sys.argv[2]), tokenizer="bytes", seed=5, replacing=True)
"""


@pytest.mark.parametrize("step", ["save_tokenizer", "_describe"])
def test_a_kill_never_leaves_a_mixture(source, tmp_path, step):
    """Killed while files are being put in place, the folder is known not to be whole, and the next run makes it so."""
    prepare(source, tmp_path / "out", tokenizer="bytes")
    command = [sys.executable, "-c", KILLED, str(source), str(tmp_path / "out"), step]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    with pytest.raises(PrepareError, match="no prepared data"):
        load_prepared(tmp_path / "out")
    data = prepare(source, tmp_path / "out", tokenizer="bytes", seed=5)
    assert not data.reused
    assert load_prepared(tmp_path / "out") == data
    assert not [name for name in os.listdir(tmp_path / "out") if name.endswith(".partial")]  # noqa: PTH208  hidden too


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.jsonl.zst", "x.parquet"])
def test_every_record_of_a_table_is_a_document(tmp_path, name):
    """JSON lines, compressed ones and Parquet give each record once, split by the hash of file and number."""
    data = prepare(write_table(tmp_path / name), tmp_path / "out", tokenizer="bytes", validation_fraction=0.3)
    assert documents(data) == sorted(STORIES)
    assert data.split == "by document: hash of (seed, file, number) below 0.3"
    assert 5 < data.validation.num_documents < 30
    assert data.train.num_bytes + data.validation.num_bytes == sum(map(len, STORIES))


def save_dataset(folder, parts):
    """What `Dataset.save_to_disk` leaves: streams of Arrow, a list of them, and an unlisted cache file."""
    pa = pytest.importorskip("pyarrow")
    folder.mkdir()
    names = [f"data-{i:05}-of-{len(parts):05}.arrow" for i in range(len(parts))]
    for name, some in zip([*names, "cache-1a2b.arrow"], [*parts, ["not data"]], strict=True):
        table = pa.table({"text": some})
        with pa.ipc.new_stream(str(folder / name), table.schema) as out:
            out.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def test_a_saved_data_set(tmp_path):
    """Of a folder that `datasets` saved, the listed tables are read, its pages and caches are not."""
    folder = save_dataset(tmp_path / "set", [STORIES[:20], STORIES[20:]])
    data = prepare(folder, tmp_path / "out", tokenizer="bytes", validation_fraction=0.3)
    assert documents(data) == sorted(STORIES)
    assert data.num_files == 2


def test_one_part_of_a_saved_dictionary_must_be_chosen(tmp_path):
    """A `DatasetDict` is refused with its parts' names: training on its test part would go unnoticed."""
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    save_dataset(tmp_path / "sets" / "train", [STORIES])
    with pytest.raises(PrepareError, match="several parts, some not for training: train, test; give one of them"):
        prepare(tmp_path / "sets", tmp_path / "out", tokenizer="bytes")
    assert prepare(tmp_path / "sets" / "train", tmp_path / "out", tokenizer="bytes", validation_fraction=0.3).num_files


def test_compressed_text_gives_the_tokens_of_the_text(tmp_path):
    """A text and the same in gzip give the same token files to the byte."""
    text = "".join(f"line {i}\n" for i in range(3000)).encode()
    for folder in ("plain", "gzip"):
        (tmp_path / folder).mkdir()
    (tmp_path / "plain" / "x.txt").write_bytes(text)
    (tmp_path / "gzip" / "x.txt.gz").write_bytes(gzip.compress(text))
    plain, packed = (
        prepare(tmp_path / name, tmp_path / f"{name}-out", tokenizer="bytes") for name in ("plain", "gzip")
    )
    assert packed.train_path.read_bytes() == plain.train_path.read_bytes()
    assert packed.validation_path.read_bytes() == plain.validation_path.read_bytes()


@pytest.mark.parametrize("tokenizer", ["bytes", pytest.param("bpe", marks=bpe_only)])
def test_any_number_of_workers_gives_the_same_bytes(tmp_path, tokenizer, monkeypatch):
    """One process and three write the same files."""
    monkeypatch.setattr(encoding, "GROUP_PIECES", 4)
    path = write_table(tmp_path / "x.jsonl")
    for count in (1, 3):
        options = {"vocab_size": 300, "validation_fraction": 0.3, "num_workers": count}
        prepare(path, tmp_path / f"out{count}", tokenizer=tokenizer, **options)
    for one in (tmp_path / "out1").iterdir():
        assert one.read_bytes() == (tmp_path / "out3" / one.name).read_bytes()


def test_a_folder_that_another_process_prepares_is_refused(source, tmp_path):
    """The second is told the first's number and host, and writes nothing; a lock that nobody holds keeps nobody out."""
    folder = tmp_path / "out"
    folder.mkdir()
    with alone(folder / room.LOCK_NAME):
        with pytest.raises(PrepareError, match=rf"another process is preparing .* \(process {os.getpid()} on "):
            prepare(source, folder, tokenizer="bytes")
        assert os.listdir(folder) == [room.LOCK_NAME]  # noqa: PTH208  hidden too
    (folder / room.LOCK_NAME).write_text('{"process_id": 1, "host": "gone", "since": "2020"}')
    assert not prepare(source, folder, tokenizer="bytes").reused
    assert not [name for name in os.listdir(folder) if name.startswith(".")]  # noqa: PTH208  hidden too


def test_a_full_disk_is_told_and_nothing_is_left(source, tmp_path):
    """A file that the system lets grow no further: the reason and the file, exit without a half-written one."""
    resource = pytest.importorskip("resource", reason="only POSIX systems limit the size of files")
    (source / "large.txt").write_text("a line of a large file\n" * 4000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(PrepareError, match="File too large"):
            prepare(source, tmp_path / "out", tokenizer="bytes")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert os.listdir(tmp_path / "out") == []  # noqa: PTH208  hidden too
