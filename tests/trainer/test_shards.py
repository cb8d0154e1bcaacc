"""Two processes (gloo, one thread each) save together; one, or two in another layout, go on from it."""

import errno
import json
import math
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from torchledger.cli.torchrun import leave
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, OptimizerSpec, Recipe, Strategy
from torchledger.trainer import shards
from torchledger.trainer.checkpoint import (
    checkpoints,
    latest_checkpoint,
    load_optimizer,
    load_weights,
    save_checkpoint,
    state_of,
)
from torchledger.trainer.errors import CheckpointError
from torchledger.trainer.identity import Identity, numerics
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.optimizer import build_optimizer
from torchledger.trainer.process_group import Crew, process_group
from torchledger.trainer.ranks import Ranks
from torchledger.trainer.saving import Saver
from torchledger.trainer.step import build_step, example_batch

SPEC = ModelSpec("tiny", 257, 32, 2, 32, AttentionSpec(4, query_bias=True), MlpSpec(48))
RECIPE = Recipe(
    batch_size=2, sequence_length=8, num_tokens=1600, optimizer=OptimizerSpec(implementation="loop", learning_rate=1e-2)
)
LAYOUTS = ("replicas", "shards", "split")


def manifest(number, spec=SPEC):
    identity = Identity(spec, RECIPE, {"train_sha256": "ab"}, numerics(torch.device("cpu")))
    return Manifest(number, identity, {"loss": 2.5})


def trained(seed=1):
    """A model after one update, so that there is optimizer state."""
    step = build_step(SPEC, replace(RECIPE, seed=seed))
    step(example_batch(RECIPE), 0)
    return step.model, step.optimizer


def spread(layout, model):
    """The model's parameters as whole tensors, FSDP2's shards (257 rows on 2 ranks), or tensor parallel ones."""
    mesh = init_device_mesh("cpu", (2,))
    if layout == "shards":
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif layout == "split":
        for layer in model.layers:
            plan = {
                "attention.query": ColwiseParallel(),
                "attention.output": RowwiseParallel(),
                "mlp.up": ColwiseParallel(),
                "mlp.down": RowwiseParallel(),
            }
            parallelize_module(layer, mesh, plan)
    return model


def whole(state):
    """Every tensor of a state in full."""
    return {name: (t.full_tensor() if isinstance(t, DTensor) else t).detach().clone() for name, t in state.items()}


def in_layout(layout, seed):
    """Model and optimizer spread over two ranks, with the state of one process that trained; and that state."""
    model, optimizer = trained(seed)
    states = whole(state_of(model, optimizer))
    model = spread(layout, model)
    optimizer = build_optimizer(model, RECIPE.optimizer)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()  # makes the state, laid out as each parameter
    optimizer.zero_grad()
    with torch.no_grad():
        for key, tensor in state_of(model, optimizer).items():
            is_spread = isinstance(tensor, DTensor)
            tensor.copy_(
                distribute_tensor(states[key], tensor.device_mesh, tensor.placements) if is_spread else states[key]
            )
    return model, optimizer, states


def differing(states, model, optimizer):
    """Names of what is not bit for bit and format for format as in `states`."""
    now = whole(state_of(model, optimizer))
    return [
        name
        for name in states.keys() | now.keys()
        if name not in states
        or name not in now
        or states[name].dtype != now[name].dtype
        or not states[name].equal(now[name])
    ]


def loaded(path, model, optimizer, group=None):
    found = load_weights(path, model, group)
    load_optimizer(path, found, model, optimizer, group)
    return model, optimizer


def _process(rank, size, port, work, args):
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0)
    with process_group(Crew(Ranks(rank, size, rank), store), torch.device("cpu")):
        work(rank, *args)
    leave(0)


def on_two_ranks(work, *args):
    """Run `work(rank, *args)` in two processes; an assertion that fails in either fails here."""
    on_ranks(2, work, *args)


def on_ranks(size, work, *args):
    """The same in so many."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2])  # where a new process finds this file again
        torch.multiprocessing.spawn(_process, (size, port, work, args), nprocs=size)


def _save_and_load(rank, folder, layout):
    model, optimizer, states = in_layout(layout, 1)
    path = save_checkpoint(folder, model, optimizer, manifest(1), keep=2, group=dist.group.WORLD)
    for other in LAYOUTS:
        got = loaded(path, *in_layout(other, 5)[:2], dist.group.WORLD)
        assert differing(states, *got) == [], (layout, other)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_ranks_save_and_any_layout_loads(tmp_path, layout):
    """What two ranks saved comes back with every bit on two ranks of each layout, and on one process.

    257 rows over two ranks are 129 and 128: shards need not be even. What both ranks hold is written once: the files
    have as many numbers as one process's.
    """
    on_two_ranks(_save_and_load, tmp_path, layout)
    path = latest_checkpoint(tmp_path)
    assert differing(state_of(*trained(1)), *loaded(path, *trained(7))) == []
    alone = save_checkpoint(tmp_path / "alone", *trained(1), manifest(1), keep=1)
    sizes = [
        sum(math.prod(t.shape) for file in Manifest.read(each).files.values() for t in file.tensors.values())
        for each in (path, alone)
    ]
    assert sizes[0] == sizes[1]
    assert len(Manifest.read(path).files) == 4  # weights and optimizer of either rank


def _load(rank, path, layout, states, told):
    got = loaded(path, *in_layout(layout, 5)[:2], dist.group.WORLD)
    (told / str(rank)).write_text(json.dumps(differing(states, *got)))


def test_one_process_saves_and_two_ranks_load(tmp_path):
    """A checkpoint of one process goes on in shards on two."""
    path = save_checkpoint(tmp_path, *trained(1), manifest(1), keep=1)
    on_two_ranks(_load, path, "shards", whole(state_of(*trained(1))), tmp_path)
    assert [json.loads((tmp_path / rank).read_text()) for rank in "01"] == [[], []]


def _save_beside_training(rank, folder):
    model, optimizer, states = in_layout("shards", 1)
    saver = Saver(folder, keep=2, asynchronous=True, group=dist.group.WORLD)
    for number in (1, 2):
        saver.save(model, optimizer, manifest(number))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1.0)  # training goes on while it is written
                dist.all_reduce(torch.ones(()))  # and so do its collectives
    assert [saved.step for saved in saver.wait()] == [1, 2]
    saver.close()
    got = loaded(folder / "step-00000001", *in_layout("shards", 5)[:2], dist.group.WORLD)
    assert differing(states, *got) == []


def test_ranks_save_while_training_goes_on(tmp_path):
    """The state is that of the moment of saving, whatever the weights become and whatever is sent meanwhile."""
    on_two_ranks(_save_beside_training, tmp_path)
    assert [step for step, _ in checkpoints(tmp_path)] == [2, 1]


def _fail_on_one(rank, folder):
    model, optimizer, _ = in_layout("shards", 1)
    path = save_checkpoint(folder, model, optimizer, manifest(1), keep=2, group=dist.group.WORLD)
    if rank == 1:
        shards.write_parts = _full
    with pytest.raises(CheckpointError, match="rank 1: No space left on device"):
        save_checkpoint(folder, model, optimizer, manifest(2), keep=2, group=dist.group.WORLD)
    assert latest_checkpoint(folder) == path
    dist.barrier()
    if rank == 1:
        file = path / "weights-rank-00000.safetensors"
        file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\1")
    dist.barrier()
    with pytest.raises(CheckpointError, match=r"weights-rank-00000\.safetensors is damaged"):
        loaded(path, model, optimizer, dist.group.WORLD)


def _full(*_args):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_fails_on_one_rank_fails_on_all(tmp_path):
    """A full disk under one rank, a damaged file: every rank has the error, none waits for ever, the last one stays."""
    on_two_ranks(_fail_on_one, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001"]


#: What is not laid out as its parameter: means of rows and columns, scales of blocks, FP32 copies of adapters alone.
KEPT_APART = {
    "adafactor": replace(RECIPE, optimizer=OptimizerSpec("adafactor")),
    "8 bit": replace(RECIPE, optimizer=OptimizerSpec("adamw-8bit")),
    "adapters": replace(RECIPE, precision="bf16-master", lora_rank=3),
}


def _trained_in_shares(recipe, seed, strategy, spec=SPEC):
    step = build_step(spec, replace(recipe, seed=seed, batch_size=1), strategy=strategy)
    for number in range(2):
        step(example_batch(replace(recipe, batch_size=1)), number)
    return step.model, step.optimizer


def _save_and_load_kept_apart(rank, folder):
    strategy = Strategy(data_parallel=2, shard_level=3)
    for name, recipe in KEPT_APART.items():
        model, optimizer = _trained_in_shares(recipe, 1, strategy)
        states = whole(state_of(model, optimizer))
        path = save_checkpoint(folder / name, model, optimizer, manifest(1), keep=2, group=dist.group.WORLD)
        assert differing(states, *loaded(path, *_trained_in_shares(recipe, 5, strategy), dist.group.WORLD)) == [], name
        if rank == 0:
            torch.save(states, folder / f"{name}.pt")


@pytest.mark.proof
def test_states_that_are_not_as_large_as_their_parameter_come_back(tmp_path):
    """Of any optimizer and of adapters two ranks save what two ranks, and one process, go on from bit for bit."""
    on_two_ranks(_save_and_load_kept_apart, tmp_path)
    for name, recipe in KEPT_APART.items():
        states = torch.load(tmp_path / f"{name}.pt", weights_only=True)
        assert any(key.startswith("optimizer/") for key in states)
        got = loaded(latest_checkpoint(tmp_path / name), *_trained_in_shares(recipe, 5, None))
        assert differing(states, *got) == [], name


#: One key-value head of four queries, and two.
FEW = {heads: replace(SPEC, attention=replace(SPEC.attention, num_key_value_heads=heads)) for heads in (1, 2)}
SHARED = {"adamw": RECIPE, "adafactor": KEPT_APART["adafactor"], "adapters": KEPT_APART["adapters"]}


def _save_and_load_shared_heads(rank, folder, spec, strategy):
    for name, recipe in SHARED.items():
        model, optimizer = _trained_in_shares(recipe, 1, strategy, spec)
        states = whole(state_of(model, optimizer))
        path = save_checkpoint(folder / name, model, optimizer, manifest(1, spec), keep=2, group=dist.group.WORLD)
        got = loaded(path, *_trained_in_shares(recipe, 5, strategy, spec), dist.group.WORLD)
        assert differing(states, *got) == [], name
        alone = folder / f"{name} alone" / path.name
        got = loaded(alone, *_trained_in_shares(recipe, 7, strategy, spec), dist.group.WORLD)
        told = states, whole(state_of(*got))
        if rank == 0:
            torch.save(told, folder / f"{name}.pt")


@pytest.mark.proof
@pytest.mark.parametrize(("size", "num_heads"), [(2, 1), (4, 2)])
def test_key_value_heads_that_ranks_share_are_saved_once(tmp_path, size, num_heads):
    """Copies on several ranks are one tensor on the disk, which as many ranks and one process go on from, and back."""
    spec, numbers = FEW[num_heads], {}
    for name, recipe in SHARED.items():
        model, optimizer = _trained_in_shares(recipe, 3, None, spec)
        save_checkpoint(tmp_path / f"{name} alone", model, optimizer, manifest(1, spec), keep=1)
        numbers[name] = whole(state_of(model, optimizer))
    on_ranks(size, _save_and_load_shared_heads, tmp_path, spec, Strategy(tensor_parallel=size))
    for name, recipe in SHARED.items():
        saved, got = torch.load(tmp_path / f"{name}.pt", weights_only=True)
        assert all(torch.equal(got[key], value) for key, value in numbers[name].items())
        path = latest_checkpoint(tmp_path / name)
        assert differing(saved, *loaded(path, *_trained_in_shares(recipe, 5, None, spec))) == [], name
        stored = sum(math.prod(t.shape) for f in Manifest.read(path).files.values() for t in f.tensors.values())
        assert stored == sum(each.numel() for each in numbers[name].values())
