"""Constants: of all chips, of an architecture, of a chip; a user's file with every mistake in it."""

from dataclasses import fields

import pytest

from torchledger.machine import get
from torchledger.planner.constants import Constants, default_constants
from torchledger.planner.errors import PlanError


def test_an_architectures_own_constants_come_before_those_of_all(tmp_path):
    """A chip's own table comes before its architecture's, and that before the one for all."""
    path = tmp_path / "mine.toml"
    path.write_text(
        "[all]\nhost_s = 1e-6\ndrag = 0.5\nstep_s = 1.0\n[hopper]\nhost_s = 2e-6\ndrag = 0.6\n"
        "[h100-sxm]\nhost_s = 3e-6\n[ampere]\nhost_s = 9e-6\n"
    )
    found = default_constants(get("h100-sxm"), path)
    assert (found.host_s, found.drag, found.step_s) == (3e-6, 0.6, 1.0)
    assert found.memory_share == Constants().memory_share


def test_every_chip_has_constants_with_a_source():
    """What nobody calibrated says so, and has a spread that an interval is made of."""
    for key in ("h100-sxm", "a100-80gb", "v100-32gb", "b200", "mi300x"):
        found = default_constants(get(key))
        assert "not calibrated" in found.source
        assert found.sigma is not None
        assert 0 < found.matmul_share <= 1
        assert 0 < found.memory_share <= 1


def test_hosts_of_older_chips_are_slower():
    """An A100's host of its time takes longer for an operation than an H100's."""
    assert default_constants(get("a100-80gb")).host_s > default_constants(get("h100-sxm")).host_s


def test_every_mistake_of_a_file_is_named(tmp_path):
    """Unknown names, texts for numbers, shares of zero: all at once, with the file and what is known."""
    path = tmp_path / "mine.toml"
    path.write_text(
        '[all]\nmatmul_sahre = 0.9\nhost_s = "fast"\nmemory_share = 0\ndrag = -1\nkernel_s = true\nsource = 3\n'
    )
    with pytest.raises(PlanError) as error:
        default_constants(get("h100-sxm"), path)
    text = str(error.value)
    assert text.count(str(path)) == len(text.splitlines()) == 6
    for each in (
        "no such constant: matmul_sahre",
        "host_s is 'fast'; it must be a number",
        "memory_share is 0; it must be above zero",
        "drag is -1; it must be zero or more",
        "kernel_s is True; it must be a number",
        "source is 3; it must be text",
    ):
        assert each in text
    assert all(each.name in text for each in fields(Constants))


def test_dates_and_notes_are_no_constants(tmp_path):
    """A file may say when and why."""
    path = tmp_path / "mine.toml"
    path.write_text('[all]\ndate = "2026-11-30"\nnote = "rack 4"\ndrag = 0.2\n')
    assert default_constants(get("h100-sxm"), path).drag == 0.2


def test_a_file_that_is_written_again_is_read_again(tmp_path):
    """Calibrating twice in one process: the second plan has the second constants."""
    path = tmp_path / "constants.toml"
    for share in (0.5, 0.6):
        path.write_text(f"[h100-sxm]\nmatmul_share = {share}\n", encoding="utf-8")
        assert default_constants(get("h100"), path).matmul_share == share
