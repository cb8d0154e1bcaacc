"""`Stack`: a training stack's own rules, read from `data/stacks.toml` or from a file of the user's.

The same words (ZeRO 1, "bf16", 1F1B) mean other bytes and other collectives in other stacks: Megatron-LM accumulates
gradients in FP32 beside 16-bit weights, FSDP casts FP32 shards when it gathers them, DeepSpeed reduces through buckets
of half a billion elements. What differs stands in data, each rule with its source; the planner reads it and has no
branch on a stack's name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from torchledger.config import ConfigError, closest, did_you_mean, load
from torchledger.planner.errors import PlanError
from torchledger.planner.schedule_order import MicroBatchGroups
from torchledger.spec.strategy import ContextKind, Schedule

DEFAULT = "torchledger"


@dataclass(frozen=True, slots=True)
class Stack:
    """How one training stack does things.

    Attributes:
        name: what a `Strategy` calls it.
        description: which software, of when.
        kernels: the formula's kernel set that it runs (`formula.KERNELS`).
        attention: `fused` (flash attention) or `math` (scores in memory), where a recipe does not say otherwise.
        attention_kernel: which fused attention kernel, for its speed (`data/attention.toml`).
        compiled: layers run through a compiler.
        host_factor: seconds of the host for an operation of this stack over those of plain eager PyTorch, where its
            fused operations are autograd functions written in Python.
        selective: what recompute `selective` runs again: the `core` of attention, or all `operations` of a layer but
            fused attention and every other matmul.
        loss: the loss's kernels where they are not those of the kernel set: `eager`, `vocabulary parallel`, `compiled`.
        parallel_loss_blocks: blocks of FP32 logits that the loss holds beside those of its kernels where the vocabulary
            is spread over tensor parallel ranks.
        dropout: probability that its language model recipes train with.
        precisions: a recipe's precision, and the one that this stack means by it (Megatron-LM's "bf16" has 16-bit
            weights with an FP32 master copy); what is not named means itself.
        mixed_policy: with shard level 3, FP32 shards are cast to 16 bits when they are gathered, and layers run in 16
            bits on them; precision `bf16` then has gathered weights and activations of 2 bytes.
        gradient_bytes: by precision (as meant), bytes per parameter of the gradient that micro-batches add up in; not
            named: the weight's own.
        fresh_gradient_bytes: by precision, bytes per parameter of a second gradient that lives beside it between
            micro-batches (a 16-bit one not given back); not named: none.
        update_gradient_bytes: by precision, bytes per updated element of a gradient copy that the optimizer makes for
            its step, when activations are gone; not named: none.
        whole_update_gradient_bytes: the same where nothing is sharded, if it differs.
        reduce_copy_bytes: by precision, bytes per parameter of the rank of a copy of all gradients that is made to
            reduce them, when activations are gone; not named: none.
        largest_tensor_bytes: by precision, bytes per element of the largest tensor of a copy that checking and
            measuring gradients makes, when activations are gone; not named: none.
        bucketed_gradients: where nothing is sharded, every gradient also lies in a bucket for its reduction.
        layer_weight_bytes: by precision, bytes per parameter of a layer's weights between two steps, where they are not
            those of the precision (matrices kept in the format of their products); embedding and head keep theirs.
        gathered_weight_bytes: by precision, bytes per parameter of a layer's weights as ranks gather them; not named:
            the format that layers compute in. Embedding and head are gathered in that.
        gathered_gradient_bytes: with shard level 3, bytes per parameter of a layer's gradient as it is reduced; 0 is
            the format that it is computed in.
        layer_buffers: layers that have buffers of their own for gathered weights (level 3) and whole gradients (levels
            2 and 3), allocated once and kept; 0: both come and go.
        whole_pipeline_gradients: with level 3 and pipeline stages, gradients also add up over micro-batches unsharded,
            in `gathered_gradient_bytes`, and are reduced after the last one.
        shard_levels: ZeRO levels that it has.
        pipeline_shard_levels: those of them that it has together with pipeline stages.
        sharded_as: the stack that has the levels which this one lacks, for who asks for them.
        keeps_gathered: whether level 3 can keep gathered weights from a forward to its backward pass.
        reshard: with level 3 and pipeline stages, gathered weights are given back after a forward pass.
        bucket_elements: elements of one bucket of gradients under reduction; 0 is none (reduced in place).
        num_buckets: buckets alive at once.
        root_holds_embedding: embedding, last norm and head are gathered as one group, kept through forward and
            backward pass (FSDP's root), not one by one.
        ends_stay: with level 3, embedding, last norm and head are gathered one by one and never given back.
        ends_together: embedding and head are one such group where they share a table, or where prediction layers read
            both again; otherwise each is gathered by itself.
        root_given_back: weights of such a group are not there at the loss, which is computed outside of the model.
        stops_early: with tensor parallelism, a second run of recompute `full` ends at the last tensor it saves, and
            the layer's last sum over its ranks is not repeated.
        sums_apart: with tensor parallelism, attention and MLP that read the same input exchange each for itself.
        routes_all_tokens: with sequence parallelism, every rank's router scores all tokens, once they are gathered for
            the experts; otherwise each those of its own.
        reduce_every_micro_batch: gradients are reduced for every micro-batch, not once a step.
        routes_first: with sequence parallelism, tokens go to their experts' ranks before the ranks that split an expert
            gather them.
        dispatches_once: a token goes over the network to an island once, and is handed on inside it to all of its
            experts there; what experts give comes back the same way. Otherwise each copy travels by itself.
        hides_dispatch: tokens travel to experts and back beside the computing of another micro-batch, of which as much
            is taken as the passes that they belong to have.
        fused_accumulation: the products that make gradients of weights add them to those of earlier micro-batches;
            otherwise a kernel of its own does.
        vocab_multiple: rows of the embedding are padded to a multiple of it.
        vocab_multiple_per_rank: of it times the tensor parallel ranks.
        island_communicators: communicators over the tensor parallel ranks.
        network_communicators: communicators beside those of the layout's own axes (the world, embedding and head ...).
        tensor_parallel, sequence_parallel, expert_parallel: whether it has them.
        schedules: pipeline schedules that it has; none: no pipeline.
        micro_batch_groups: of which sizes the groups of micro-batches of its interleaved chunks may be.
        context_kinds: ways of context parallelism that it has.
        uneven_layers: stages may have different numbers of layers.
        embeddings_as_layers: layers are spread as if embedding and head were one each.
        batched_sends: both neighbours' sends and receives are started together and waited for.
        scatters_sends: what a pipeline stage hands on is cut by the tensor parallel ranks, each of which sends its part
            and gathers the others' behind the network (arXiv:2104.04473, section 4.1).
        regathers_inputs: with sequence parallelism, a layer's inputs are kept divided and gathered again for the weight
            gradients; otherwise they are kept whole.
        overlap_data: its recipes hide gradient reduction and weight gathering behind computing.
        overlap_tensor: its recipes cut up tensor parallel collectives and run them beside matmuls.
        expandable_segments: the CUDA allocator's segments grow (`expandable_segments:True`).
        allocator: `cuda` is PyTorch's caching allocator, `xla` reserves what its compiler planned.
        stream_pools: weights are gathered on a stream whose memory no other stream uses.
        context_bytes: what a process holds outside the allocator (CUDA context, loaded kernels); nothing: the
            general figure of `memory.cuda_context`.
        notes: what a reader should know beside.
        sources: where the rules stand, by field; `*` for the rest.
    """

    name: str
    description: str
    kernels: str
    attention: str = "fused"
    attention_kernel: str = "flash-attention-2"
    compiled: bool = False
    host_factor: float = 1.0
    selective: Literal["core", "operations"] = "core"
    loss: Literal["", "eager", "vocabulary parallel", "compiled"] = ""
    parallel_loss_blocks: int = 0
    dropout: float = 0.0
    precisions: dict[str, str] = field(default_factory=dict)
    mixed_policy: bool = False
    gradient_bytes: dict[str, float] = field(default_factory=dict)
    fresh_gradient_bytes: dict[str, float] = field(default_factory=dict)
    update_gradient_bytes: dict[str, float] = field(default_factory=dict)
    whole_update_gradient_bytes: dict[str, float] = field(default_factory=dict)
    reduce_copy_bytes: dict[str, float] = field(default_factory=dict)
    largest_tensor_bytes: dict[str, float] = field(default_factory=dict)
    bucketed_gradients: bool = False
    layer_weight_bytes: dict[str, float] = field(default_factory=dict)
    gathered_weight_bytes: dict[str, float] = field(default_factory=dict)
    gathered_gradient_bytes: float = 0.0
    layer_buffers: int = 0
    whole_pipeline_gradients: bool = False
    shard_levels: tuple[int, ...] = (0,)
    pipeline_shard_levels: tuple[int, ...] = (0,)
    sharded_as: str = ""
    keeps_gathered: bool = True
    reshard: bool = True
    bucket_elements: int = 0
    num_buckets: int = 0
    root_holds_embedding: bool = False
    ends_stay: bool = False
    ends_together: bool = False
    root_given_back: bool = False
    stops_early: bool = False
    sums_apart: bool = False
    routes_all_tokens: bool = False
    reduce_every_micro_batch: bool = False
    routes_first: bool = False
    dispatches_once: bool = False
    hides_dispatch: bool = False
    fused_accumulation: bool = False
    vocab_multiple: int = 1
    vocab_multiple_per_rank: bool = False
    island_communicators: int = 1
    network_communicators: int = 1
    tensor_parallel: bool = True
    sequence_parallel: bool = True
    expert_parallel: bool = True
    schedules: tuple[Schedule, ...] = ()
    micro_batch_groups: MicroBatchGroups = "any"
    context_kinds: tuple[ContextKind, ...] = ()
    uneven_layers: bool = True
    embeddings_as_layers: bool = False
    batched_sends: bool = False
    scatters_sends: bool = False
    regathers_inputs: bool = False
    overlap_data: bool = True
    overlap_tensor: bool = False
    expandable_segments: bool = False
    allocator: str = "cuda"
    stream_pools: bool = False
    context_bytes: int | None = None
    notes: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.name)

    def precision(self, asked: str) -> str:
        """What a recipe's precision means in this stack.

        >>> stack("megatron").precision("bf16")
        'bf16-master'
        """
        return self.precisions.get(asked, asked)

    def padded_vocab(self, vocab_size: int, tensor_parallel: int) -> int:
        """Rows of the embedding as this stack stores them.

        >>> stack("megatron").padded_vocab(50257, 8)
        51200
        """
        multiple = self.vocab_multiple * (tensor_parallel if self.vocab_multiple_per_rank else 1)
        return -(-vocab_size // multiple) * multiple


def stack(name: str = DEFAULT) -> Stack:
    """A stack by its name, or of a file: `mine.toml`, or `mine.toml:name` where it has several.

    Raises:
        PlanError: no such stack; the message names the known ones.
        ConfigError: the file has mistakes; all of them are in it.
        OSError: the file cannot be read.
    """
    path, _, inner = name.rpartition(":") if ".toml:" in name else (name, "", "")
    if path.endswith(".toml"):
        return _of_file(Path(path), inner)
    found = _builtin(name)
    if found is None:
        raise PlanError(_unknown(name, tuple(_tables())))
    return found


def stacks(path: Path | None = None) -> Mapping[str, Stack]:
    """All stacks that come with torchledger, or those of a file.

    A stack of a file may say `like = "megatron"` and then only what differs.

    Raises:
        ConfigError: the file has mistakes; all of them are in it.
        OSError: the file cannot be read.
    """
    if path is not None:
        return MappingProxyType(_read(str(path), _parse(path.read_text(encoding="utf-8"), str(path))))
    return MappingProxyType({name: stack(name) for name in _tables()})


def _of_file(path: Path, name: str) -> Stack:
    if not path.is_file():
        raise PlanError(f"stack: there is no file {path}; say the name of a known stack, or a file that is there")
    found = _unchanged(str(path), path.stat().st_mtime_ns)
    if name and name in found:
        return found[name]
    if not name and len(found) == 1:
        return next(iter(found.values()))
    names = ", ".join(found)
    if name:
        raise PlanError(f"stack {name!r} is not in {path}; there are {names}")
    raise PlanError(f"{path} has {len(found)} stacks; say which: {path}:{next(iter(found), 'NAME')} ({names})")


@lru_cache(maxsize=16)
def _unchanged(path: str, _changed_ns: int) -> Mapping[str, Stack]:
    """The stacks of a file, read once until it changes: a search asks for its stack hundreds of thousands of times."""
    return stacks(Path(path))


def _unknown(name: str, known: tuple[str, ...]) -> str:
    near = closest(name, known)
    hint = f"{did_you_mean(name, known)}; " if near else ""
    return f"stack {name!r} is not known; {hint}known are {', '.join(known)}; a file of your own ends in .toml"


@lru_cache(maxsize=1)
def _tables() -> dict[str, dict[str, Any]]:
    text = resources.files("torchledger.planner").joinpath("data/stacks.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@lru_cache(maxsize=64)
def _builtin(name: str) -> Stack | None:
    if name not in _tables():
        return None
    table = _resolved(name, _tables(), "stacks.toml", [])
    return load(None, Stack, table={"name": name, **table}).value


def _parse(text: str, file: str) -> dict[str, dict[str, Any]]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(file, [("", f"is no TOML: {error}")]) from None
    loose = [key for key, value in tables.items() if not isinstance(value, dict)]
    if loose or not tables:
        message = "a stack is a table: [my-stack], with like = and what differs below it"
        raise ConfigError(file, [(", ".join(loose), message)])
    return tables


def _read(file: str, tables: dict[str, dict[str, Any]]) -> dict[str, Stack]:
    mistakes: list[tuple[str, str]] = []
    found: dict[str, Stack] = {}
    for name in tables:
        wrong: list[tuple[str, str]] = []
        table = _resolved(name, tables, file, wrong)
        try:
            if not wrong:
                found[name] = load(None, Stack, table={"name": name, **table}).value
        except ConfigError as error:
            wrong += [(f"{name}.{place}", message) for place, message in error.mistakes]
        mistakes += wrong
    if mistakes:
        raise ConfigError(file, mistakes)
    return found


def _resolved(
    name: str,
    tables: Mapping[str, dict[str, Any]],
    file: str,
    wrong: list[tuple[str, str]],
    above: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The table over those that it is `like`; a table inside it (`sources`) is merged key by key."""
    table = dict(tables[name] if name in tables and name not in above else _tables()[name])
    like = table.pop("like", None)
    if like is None:
        return table
    if like in above or (like == name and like not in _tables()):
        wrong.append((f"{name}.like", f"goes round in a circle: {' -> '.join((*above, name, str(like)))}"))
        return table
    if like not in tables and like not in _tables():
        wrong.append((f"{name}.like", _unknown(str(like), (*tables, *_tables()))))
        return table
    under = _resolved(like, tables if like != name else _tables(), file, wrong, (*above, name))
    merged = {**under, **table}
    for key, value in table.items():
        if isinstance(value, dict) and isinstance(under.get(key), dict):
            merged[key] = {**under[key], **value}
    return merged


#: Fields that need no source: they say what a stack is called, not what it does.
NAMES: frozenset[str] = frozenset({"name", "description", "notes", "sources"})
#: Every rule of a stack.
RULES: tuple[str, ...] = tuple(each.name for each in fields(Stack) if each.name not in NAMES)
