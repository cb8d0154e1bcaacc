"""Arguments and options that are files or folders."""

from pathlib import Path

import click
import pytest

from torchledger.cli.named_path import NamedPath


def test_an_empty_path_is_refused():
    """What an unset shell variable leaves is no path: it is not the current folder."""
    with pytest.raises(click.BadParameter, match=r"empty path names nothing"):
        NamedPath(path_type=Path).convert("", None, None)


def test_any_other_is_as_click_has_it(tmp_path):
    """A path that is named is that of click, the current folder too."""
    for name in (".", str(tmp_path), "a b"):
        assert NamedPath(path_type=Path).convert(name, None, None) == Path(name)


@pytest.mark.parametrize("words", [["train", "--out", ""], ["train", "--resume", ""], ["prepare", "x", "--out", ""]])
def test_no_command_writes_where_it_was_started(ask, words):
    """Commands that write a folder take none by accident."""
    answer = ask(*words)
    assert answer.code == 2
    assert "an empty path names nothing" in answer.err
