"""How a layout is launched: the command, the files beside it, and what the stack cannot do of it."""

from __future__ import annotations

from typing import Any

from torchledger.planner.launch import Launch
from torchledger.view.screen import Block, Lines


def launch_screen(launch: Launch) -> tuple[Block, ...]:
    """The command line of one host, ready to be copied; before it what it does not do of the layout."""
    blocks: list[Block] = []
    if launch.cannot:
        blocks.append(Lines(launch.cannot, f"{launch.target} cannot run the layout as planned", "warning"))
    title = f"launch with {launch.target}{', not as planned' if launch.cannot else ''}"
    blocks.append(Lines(tuple(launch.command.split("\n")), title, "code"))
    blocks += [Lines(tuple(text.rstrip("\n").split("\n")), name, "code") for name, text in launch.files.items()]
    blocks.append(Lines((*launch.notes, f"flags: {launch.source}"), mark="note"))
    return tuple(blocks)


def launch_to_dict(launch: Launch) -> dict[str, Any]:
    """The same as JSON-ready data."""
    return {
        "target": launch.target,
        "words": list(launch.words),
        "files": dict(launch.files),
        "cannot": list(launch.cannot),
        "notes": list(launch.notes),
        "source": launch.source,
    }
