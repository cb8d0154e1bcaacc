"""What the README and the pages under docs/ show is what happens: every command runs, every shown line is printed.

A page is a sitting: its blocks run from top to bottom in one empty folder, in this process.

- A `console` block holds commands after `$ ` and, below each, lines of its output in their order. A line `...` leaves
  lines out; without it the next shown line is the next printed one. Amounts of white space are not compared: tables
  grow with their neighbours. What goes to stderr is not output.
- ` ```console not run: REASON` is not run. ` ```console may exit 4: REASON` may also end with that exit code.
- A `pycon` block is a doctest; `...` leaves out what it likes.
- A block whose first line is `# NAME.toml` is a file, written to the folder.

docs/cli.md is generated and has its own tests.
"""

from __future__ import annotations

import doctest
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from torchledger.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name != "cli.md")]

DOCTEST = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        line: number of the line of its opening fence.
        language: first word after the fence.
        remark: the rest of that line.
        lines: what is inside.
    """

    line: int
    language: str
    remark: str
    lines: tuple[str, ...]


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, top to bottom."""
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        if line.startswith("```"):
            language, _, remark = line[3:].strip().partition(" ")
            inside = []
            for _, each in lines:
                if each.startswith("```"):
                    break
                inside.append(each)
            yield Block(number, language, remark, tuple(inside))


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console block with the lines that are shown below it."""
    command, shown = None, []
    for line in block.lines:
        if line.startswith("$ "):
            if command is not None:
                yield command, shown
            command, shown = line[2:], []
        else:
            shown.append(line)
    assert command is not None, f"line {block.line}: a console block without a command"
    yield command, shown


def missing(shown: list[str], printed: str) -> str | None:
    r"""The first shown line that is not where it should be in the output, or nothing.

    >>> missing(["a  b", "...", "d"], "a b\nc\nd\n")
    >>> missing(["a b", "d"], "a b\nc\nd\n")
    'd'
    """
    output = [squeezed(line) for line in printed.splitlines()]
    while output and not output[0]:
        output.pop(0)
    position, free = 0, True
    for line in shown:
        if line.strip() == "...":
            free = True
            continue
        wanted = squeezed(line)
        try:
            found = output.index(wanted, position) if free else position
        except ValueError:
            return line
        if found >= len(output) or output[found] != wanted:
            return line
        position, free = found + 1, False
    return None


def squeezed(line: str) -> str:
    return re.sub(r"\s+", " ", line).strip()


def allowed_exits(remark: str) -> set[int]:
    """Exit codes that a block may have.

    >>> sorted(allowed_exits("may exit 4: seconds depend on the machine"))
    [0, 4]
    """
    if not remark:
        return {0}
    match = re.fullmatch(r"may exit (\d+): \S.*", remark)
    assert match, f"a console block says {remark!r}; it may say `not run: REASON` or `may exit N: REASON`"
    return {0, int(match[1])}


def run_console(block: Block, capsys) -> Iterator[str]:
    """Run a block's commands; what was not as shown, if anything."""
    exits = allowed_exits(block.remark)
    for command, shown in commands(block):
        capsys.readouterr()
        code = main(shlex.split(command)[1:])
        printed = capsys.readouterr()
        if code not in exits:
            yield f"line {block.line}: `{command}` exits {code}: {printed.err}"
        elif (gap := missing(shown, printed.out)) is not None:
            yield f"line {block.line}: `{command}` does not print, where it is shown, {gap!r}\n{printed.out}"


def run_python(block: Block, names: dict[str, object], page: Path) -> list[str]:
    """Run a block as a doctest; what it defines is there for the blocks below. The failures, if any."""
    name = f"{page.name}_{block.line}"  # of its own, or who reads source lines would get those of another block
    test = doctest.DocTestParser().get_doctest("\n".join(block.lines) + "\n", names, name, str(page), block.line)
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=DOCTEST, verbose=False).run(test, out=failures.append, clear_globs=False)
    names.update(test.globs)
    return failures


def is_run(block: Block) -> bool:
    return not block.remark.startswith("not run: ")


@pytest.fixture(autouse=True)
def _threads():
    """A page may train with its own number of threads, which is torch's for the whole process."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_what_a_page_shows_is_what_happens(page, tmp_path, monkeypatch, capsys):
    """From top to bottom: files are written, commands run and print what is shown, Python answers as shown."""
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    names: dict[str, object] = {}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "console" and is_run(block):
            assert list(run_console(block, capsys)) == []
        elif block.language == "pycon":
            assert run_python(block, names, page) == []
        elif block.lines and (file := re.fullmatch(r"# (\w+\.toml)", block.lines[0])):
            (tmp_path / file[1]).write_text("\n".join(block.lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_console_block_is_ours_or_says_why_it_is_not_run(page):
    """What is run are this program's commands; everything else gives its reason."""
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "console" and is_run(block):
            for command, _ in commands(block):
                program, name, *_ = shlex.split(command)
                assert (program, name in COMMANDS) == ("torchledger", True), f"line {block.line}: {command}"
        elif block.language == "console":
            assert block.remark.removeprefix("not run: ").strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_link_leads_somewhere(page):
    """A link to a file of the repository leads to a file that is there."""
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_named_test_is_there(page):
    """Where a page says which test holds a claim, the file exists, and the test is in it."""
    text = page.read_text(encoding="utf-8")
    for path, _, function in re.findall(r"`(tests/[\w/]+\.py)(::(\w+))?`", text):
        file = ROOT / path
        assert file.is_file(), path
        assert not function or f"def {function}(" in file.read_text(encoding="utf-8"), f"{path}::{function}"


def test_a_line_that_is_not_printed_is_found():
    """Lines must be there, in order, side by side where nothing is left out; white space does not matter."""
    printed = "\none two\nthree\nfour\n"
    assert missing(["one   two", "three"], printed) is None
    assert missing(["one two", "...", "four"], printed) is None
    assert missing(["one two", "four"], printed) == "four"
    assert missing(["four", "...", "three"], printed) == "three"
    assert missing(["five"], printed) == "five"
    assert missing(["four", "five"], printed) == "five"


def test_a_remark_gives_its_reason():
    """A block that is run has no remark, or one that allows another exit code and says why."""
    assert allowed_exits("") == {0}
    assert allowed_exits("may exit 4: seconds depend on the machine") == {0, 4}
    with pytest.raises(AssertionError, match="may say"):
        allowed_exits("not today")
