"""`launch`: a layout as the command line of a training stack, and what of it the stack cannot do, by name.

Flag names are data (`data/launch.toml`), each stack's with the commit and the date where they were read.

launch_megatron.py    Megatron-LM's pretrain_gpt.py
launch_torchtitan.py  torchtitan's command line
launch_plain.py       FSDP2 under torchrun, DeepSpeed, and torchledger's own train
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from torchledger.config import closest, did_you_mean
from torchledger.machine import Cluster
from torchledger.planner.errors import PlanError
from torchledger.planner.launch_megatron import megatron
from torchledger.planner.launch_plain import deepspeed, fsdp2, torchledger
from torchledger.planner.launch_said import Facts, Said
from torchledger.planner.launch_torchtitan import torchtitan
from torchledger.spec import ModelSpec, Recipe, Strategy

_WRITERS: Mapping[str, Callable[[ModelSpec, Recipe, Strategy, Facts], Said]] = MappingProxyType(
    {
        "torchtitan": torchtitan,
        "megatron": megatron,
        "fsdp2": fsdp2,
        "deepspeed": deepspeed,
        "torchledger": torchledger,
    }
)

#: Stacks that a layout can be said to.
TARGETS: tuple[str, ...] = tuple(_WRITERS)

#: Chips of one host where an island is larger than one (racks, pods) or smaller than none is known of: the first that
#: the ranks fill.
_HOST_CHIPS = (8, 4, 2)


class HostsUnfilled(PlanError):
    """Ranks that do not fill hosts of so many chips: no command of torchrun's starts as many on each host.

    Attributes:
        num_ranks: of the run.
        per_host: chips of a host.
    """

    def __init__(self, num_ranks: int, per_host: int) -> None:
        self.num_ranks = num_ranks
        self.per_host = per_host
        super().__init__(f"{self.what}; say how many a host has")

    @property
    def what(self) -> str:
        """What cannot be, without what to do."""
        return f"{self.num_ranks} ranks do not fill hosts of {self.per_host} chips"

    @property
    def filled(self) -> str:
        """Chips of hosts, more than one each, that the ranks do fill: `2, 3 or 6`, or nothing."""
        return _either([size for size in range(2, _HOST_CHIPS[0] + 1) if self.num_ranks % size == 0])

    @property
    def full(self) -> str:
        """The nearest numbers of ranks that fill such hosts: `8 or 16`."""
        below = self.num_ranks // self.per_host * self.per_host
        return _either([number for number in (below, below + self.per_host) if number])


def _either(numbers: Sequence[int]) -> str:
    words = list(map(str, numbers))
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


@dataclass(frozen=True, slots=True)
class Launch:
    """How a layout is launched.

    Attributes:
        target: the stack.
        words: the command line of one host, word by word.
        files: contents by file name, of what must lie beside it.
        cannot: what of the layout or the recipe the stack has no way to say, each with its reason; where there is any,
            the command runs something else.
        notes: what a user has to know or to add.
        source: where the flags were read, with the date.
    """

    target: str
    words: tuple[str, ...]
    files: Mapping[str, str]
    cannot: tuple[str, ...]
    notes: tuple[str, ...]
    source: str

    @property
    def is_exact(self) -> bool:
        """Whether the command runs the layout as planned."""
        return not self.cannot

    @property
    def command(self) -> str:
        """The command line as a shell reads it, one option a line; HEAD_NODE is left for the shell to fill."""
        lines, line = [], ""
        for word in self.words:
            shown = shell_word(word)
            if word.startswith("--") and line:
                lines.append(line)
                line = f"  {shown}"
            else:
                line = f"{line} {shown}" if line else shown
        return " \\\n".join([*lines, line])


def launch(
    spec: ModelSpec,
    recipe: Recipe,
    strategy: Strategy,
    cluster: Cluster,
    target: str,
    *,
    chips_per_host: int | None = None,
) -> Launch:
    """Say a layout to a training stack.

    Args:
        spec: the model.
        recipe: how it is trained.
        strategy: the layout.
        cluster: where it runs; its islands say how many processes a host starts, where they are hosts.
        target: one of `TARGETS`.
        chips_per_host: how many processes a host starts, where it is known.

    Raises:
        HostsUnfilled: hosts that the ranks do not fill.
        PlanError: no such stack.
    """
    if target not in _WRITERS:
        near = f"{did_you_mean(target, TARGETS)}; " if closest(target, TARGETS) else ""
        raise PlanError(f"no launch flags for {target!r}; {near}there are {', '.join(TARGETS)}")
    facts = _facts()[target]
    said = _WRITERS[target](spec, recipe, strategy, facts)
    starter, assumed = _starter(strategy.num_ranks, cluster, chips_per_host, spec.name)
    if target == "torchledger" and strategy.num_ranks == 1:
        starter, assumed = ("python",), ()
    return Launch(
        target,
        (*starter, *facts["program"], *said.flags),
        MappingProxyType(dict(said.files)),
        tuple(said.cannot),
        (*facts["notes"], *said.notes, *assumed),
        f"{facts['source']} ({facts['date']})",
    )


def default_launch(spec: ModelSpec, recipe: Recipe, strategy: Strategy, cluster: Cluster) -> Launch | None:
    """How a layout is launched where nobody says with what: with the stack that it was planned for.

    Where that cannot run the layout as planned, with the first that can, which its notes say; where none can, with its
    own after all, and what it cannot do. Nothing for a stack without flags here.

    Raises:
        HostsUnfilled: hosts that the ranks do not fill.
    """
    target = next((name for name in TARGETS if strategy.stack in (name, *_facts()[name].get("stacks", ()))), None)
    if target is None:
        return None
    own = launch(spec, recipe, strategy, cluster, target)
    if own.is_exact:
        return own
    others = (launch(spec, recipe, strategy, cluster, target) for target in TARGETS if target != own.target)
    found = next((each for each in others if each.is_exact), None)
    if found is None:
        return own
    why = (
        f"{own.target} cannot run the layout as planned ({'; '.join(own.cannot)}), {found.target} can;"
        f" seconds and bytes above are those of {own.target}'s kernels"
    )
    return replace(found, notes=(why, *found.notes))


def _starter(
    num_ranks: int, cluster: Cluster, chips_per_host: int | None, job: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Torchrun's words, and what was assumed for them."""
    assumed: tuple[str, ...] = ()
    per_host = chips_per_host
    if per_host is None:
        most, per_host = _HOST_CHIPS[0], cluster.chips_per_island
        if not 1 < per_host <= most:
            per_host = next((size for size in _HOST_CHIPS if num_ranks > most and num_ranks % size == 0), most)
        per_host = min(per_host, num_ranks)
        if num_ranks > per_host:
            assumed = (f"hosts have {per_host} chips each",)
    words, notes = torchrun_words(num_ranks, per_host, job=job)
    return words, (*assumed, *notes)


#: The host that all others meet at; a shell where it is not set says so and starts nothing.
_HEAD_NODE = "${HEAD_NODE:?}"
_HEAD_PORT = 29500
_ENDPOINT = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\])(?::(?P<port>[0-9]{1,5}))?")


def torchrun_words(
    num_ranks: int, per_host: int, *, job: str = "torchledger", head: str = _HEAD_NODE
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """How `torchrun` starts so many ranks on one host, and what there is to know.

    Source: https://docs.pytorch.org/docs/2.13/elastic/run.html. On one host `--standalone` takes a port that is free,
    so that two runs do not meet; hosts meet at one of them, under a name that other runs do not have.

    Args:
        num_ranks: of the run.
        per_host: ranks that each host starts.
        job: name of the run, under which hosts find each other.
        head: the host that they meet at, `host` or `host:port`; left for the shell to fill where nothing is given.

    Raises:
        HostsUnfilled: hosts that the ranks do not fill.
        PlanError: a head that is no host.

    >>> torchrun_words(8, 8)
    (('torchrun', '--standalone', '--nproc-per-node=8'), ())
    >>> torchrun_words(16, 8, job="books", head="node0")[0][3:]
    ('--rdzv-backend=c10d', '--rdzv-endpoint=node0:29500', '--rdzv-id=books')
    """
    if per_host < 1 or num_ranks % per_host:
        raise HostsUnfilled(num_ranks, per_host)
    num_hosts = num_ranks // per_host
    if num_hosts == 1:
        return ("torchrun", "--standalone", f"--nproc-per-node={per_host}"), ()
    words = ("torchrun", f"--nnodes={num_hosts}", f"--nproc-per-node={per_host}")
    meeting = ("--rdzv-backend=c10d", f"--rdzv-endpoint={_endpoint(head)}", f"--rdzv-id={job}")
    where = "where HEAD_NODE is set to the name of one of them" if head == _HEAD_NODE else f"of which {head} is one"
    return (*words, *meeting), (f"run it on each of the {num_hosts} hosts, {where}",)


def _endpoint(head: str) -> str:
    """The host with a port: its own, or torchrun's usual one. An IPv6 address that has one is in brackets.

    torchrun reads what it is given much later, on every host, and takes `x:` for this host and `x:y` for a name.
    """
    if head == _HEAD_NODE:
        return f"{head}:{_HEAD_PORT}"
    with contextlib.suppress(ValueError):
        return f"[{ipaddress.IPv6Address(head)}]:{_HEAD_PORT}"
    said = _ENDPOINT.fullmatch(head)
    port = int((said and said["port"]) or _HEAD_PORT)
    if said is None or not 0 < port < 2**16:
        raise PlanError(f"{head!r} names no host to meet at; write a host, or host:port with a port of 1 to 65535")
    return f"{said['host']}:{port}"


def shell_word(word: str) -> str:
    """A word as a shell reads it: quoted, but for the name of the host that the shell fills in."""
    return _HEAD_NODE.join(shlex.quote(part) if part else "" for part in word.split(_HEAD_NODE)) or "''"


@cache
def _facts() -> Mapping[str, dict[str, Any]]:
    text = resources.files("torchledger.planner").joinpath("data/launch.toml").read_text(encoding="utf-8")
    return MappingProxyType(tomllib.loads(text))
