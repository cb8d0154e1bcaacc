from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.trainer.containers import FileFormat
from torchledger.trainer.sources import SourceFile, Sources
from torchledger.trainer.split import choose_split

fractions = st.floats(0.01, 0.99)


def sources(names, num_bytes=100, num_separators=0):
    files = tuple(SourceFile(name, num_bytes, "0" * 64, num_separators) for name in sorted(names))
    return Sources("folder", Path(), files, ())


@given(st.sets(st.text(max_size=5), min_size=2, max_size=30), fractions, st.integers(0, 9))
def test_both_parts_have_a_file(names, fraction, seed):
    """Of two files or more, at least one is for training and one for validation, whatever the fraction."""
    chosen = choose_split(sources(names), fraction, seed).validation_files
    assert chosen <= names
    assert 1 <= len(chosen) <= len(names) - 1


@given(st.sets(st.integers(0, 10**6), min_size=40, max_size=80), st.integers(0, 10**6 + 1), fractions)
def test_a_file_keeps_its_part(numbers, added, fraction):
    """Adding a file moves no other from one part to the other, but for the one that had to fill an empty part."""
    names = {str(number) for number in numbers}
    before = choose_split(sources(names), fraction, 0).validation_files
    after = choose_split(sources(names | {str(added)}), fraction, 0).validation_files
    assert len((after ^ before) - {str(added)}) <= 1


def test_fraction_is_kept():
    """Of 10,000 files a fifth is for validation: 2,000, within five standard deviations of 40."""
    chosen = choose_split(sources({str(i) for i in range(10_000)}), 0.2, 0).validation_files
    assert abs(len(chosen) - 2000) < 5 * 40


def test_seed_chooses():
    """Another seed validates on other files."""
    names = {str(i) for i in range(100)}
    assert (
        choose_split(sources(names), 0.1, 0).validation_files != choose_split(sources(names), 0.1, 1).validation_files
    )


@pytest.mark.parametrize(
    ("num_separators", "fraction", "by"), [(0, 0.5, "slice"), (399, 0.05, "slice"), (400, 0.05, "document")]
)
def test_single_file(num_separators, fraction, by):
    """A file is split by documents from 20/0.05 = 400 end-of-text marks on, and cut off at its end below that."""
    split = choose_split(sources(["a"], num_separators=num_separators), fraction, 0)
    assert split.by == by
    assert by in split.rule or "last" in split.rule


def test_slice_begins_where_the_fraction_says():
    """A quarter of 100 bytes begins at byte 75."""
    assert choose_split(sources(["a"]), 0.25, 0).first_validation_byte == 75


def test_documents_by_their_number():
    """Of 10,000 documents a twentieth is for validation: 500, within five standard deviations of 22."""
    split = choose_split(sources(["a"], num_separators=10_000), 0.05, 0)
    assert abs(sum(split.validates_document(i) for i in range(10_000)) - 500) < 5 * 22


def test_a_table_is_split_by_record():
    """With a table among the files, every document goes by the hash of file and number, a text file as its first."""
    table = SourceFile("a.jsonl", 10, "hash", format=FileFormat("jsonl"))
    text = SourceFile("b.txt", 10, "hash")
    split = choose_split(Sources("folder", Path("x"), (table, text), ()), 0.25, seed=3)
    assert split.by == "record"
    chosen = [split.validates_record("a.jsonl", n) for n in range(2000)]
    assert 0.22 < sum(chosen) / 2000 < 0.28  # within three standard deviations: sqrt(0.25 * 0.75 / 2000) = 0.0097
    assert chosen != [split.validates_record("b.txt", n) for n in range(2000)]
