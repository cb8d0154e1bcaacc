"""Stacks: every rule has a source, names are told, a user's own file says only what differs."""

import dataclasses

import pytest

from torchledger.config import ConfigError
from torchledger.planner.errors import PlanError
from torchledger.planner.stack import RULES, Stack, stack, stacks

NAMES = (
    "torchledger",
    "fsdp2",
    "torchtitan",
    "torchtitan-compiled",
    "torchtitan-2024",
    "torchtitan-2024-compiled",
    "fsdp1",
    "megatron",
    "megatron-deepep",
    "megatron-a2a-overlap",
    "megatron-fsdp",
    "megatron-2021",
    "megatron-deepspeed",
    "deepspeed",
    "nanotron",
    "maxtext",
)


def test_the_stacks_that_come_along():
    """Every stack that comes along stands under its name."""
    assert {name: each.name for name, each in stacks().items()} == {name: name for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_has_a_source(name):
    """A stack says where its rules stand, and names no rule that there is not."""
    found = stack(name)
    assert "*" in found.sources
    assert set(found.sources) - {"*"} <= set(RULES)


@pytest.mark.parametrize("name", NAMES)
def test_levels_with_a_pipeline_are_levels(name):
    """What a stack can shard beside a pipeline it can shard without one."""
    found = stack(name)
    assert set(found.pipeline_shard_levels) <= set(found.shard_levels) <= {0, 1, 2, 3}


@pytest.mark.parametrize("name", NAMES)
def test_who_has_the_levels_that_a_stack_lacks(name):
    """The stack that another one is sharded as has every level of ZeRO, and is sharded as none itself."""
    other = stack(name).sharded_as
    assert other in {"", "megatron-fsdp"}
    assert not other or (stack(other).shard_levels, stack(other).sharded_as) == ((0, 1, 2, 3), "")


def test_stacks_are_keys():
    """A stack can be a key: equal stacks have equal hashes."""
    copy = dataclasses.replace(stack("megatron"))
    assert copy == stack("megatron")
    assert hash(copy) == hash(stack("megatron"))
    assert stack("megatron") != stack("fsdp2")


def test_an_unknown_stack_names_the_known_ones():
    """A misspelt name is answered with the one that was meant and with all of them."""
    with pytest.raises(PlanError, match=r"'megatorn' is not known; did you mean 'megatron'\?; known are torchledger"):
        stack("megatorn")


def test_a_file_that_is_not_there_is_a_wrong_name(tmp_path):
    """`--stack mine.toml` without such a file names the file, and what else a stack may be."""
    with pytest.raises(PlanError, match=r"no file .*mine\.toml; say the name of a known stack"):
        stack(str(tmp_path / "mine.toml"))


def test_a_file_says_what_differs(tmp_path):
    """A stack of a user's own takes over another one's rules and changes those that it names."""
    path = tmp_path / "mine.toml"
    path.write_text(
        '[fast]\nlike = "megatron"\ndescription = "ours"\ndropout = 0.2\n[fast.sources]\ndropout = "wiki"\n'
    )
    found = stack(str(path))
    assert (found.name, found.description, found.dropout) == ("fast", "ours", 0.2)
    assert found.sources["dropout"] == "wiki"
    unchanged = {name: getattr(found, name) for name in RULES if name != "dropout"}
    assert unchanged == {name: getattr(stack("megatron"), name) for name in RULES if name != "dropout"}


def test_a_file_with_several_is_asked_by_name(tmp_path):
    """Of a file with two stacks one is named after a colon; without it, both are told."""
    path = tmp_path / "mine.toml"
    path.write_text('[a]\nlike = "fsdp2"\n[b]\nlike = "a"\ncompiled = true\n')
    assert stack(f"{path}:b").compiled
    assert not stack(f"{path}:a").compiled
    with pytest.raises(PlanError, match=r"has 2 stacks; say which: .*mine.toml:a \(a, b\)"):
        stack(str(path))
    with pytest.raises(PlanError, match=r"'c' is not in .*; there are a, b"):
        stack(f"{path}:c")


def test_every_mistake_of_a_file_is_told_at_once(tmp_path):
    """A word that is no field, a value of the wrong type and a stack that there is not are one message."""
    path = tmp_path / "mine.toml"
    path.write_text('[a]\nlike = "fsdp9"\n[b]\nlike = "fsdp2"\ncompild = true\ndropout = "much"\n')
    with pytest.raises(ConfigError) as raised:
        stacks(path)
    places = {place for place, _ in raised.value.mistakes}
    assert {"a.like", "b.compild", "b.dropout"} <= places


@pytest.mark.parametrize("text", ["x = 1\n", "", "[a\n", '[a]\nlike = "b"\n[b]\nlike = "a"\n'])
def test_files_that_are_none(tmp_path, text):
    """Loose values, nothing, no TOML and a circle are refused."""
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        stacks(path)


@pytest.mark.parametrize(
    ("name", "tensor_parallel", "rows"),
    [
        ("megatron", 1, 50304),  # 393 · 128
        ("megatron", 8, 51200),  # 50 · 128 · 8
        ("nanotron", 4, 50257),
    ],
)
def test_padded_vocabulary(name, tensor_parallel, rows):
    """Megatron-LM pads GPT-2's 50,257 rows to a multiple of 128 times the tensor parallel ranks."""
    assert stack(name).padded_vocab(50257, tensor_parallel) == rows


def test_what_bf16_means():
    """BF16 is 16-bit weights with a master copy in Megatron-LM, and FP32 shards that are cast under FSDP."""
    assert stack("megatron").precision("bf16") == "bf16-master"
    assert stack("fsdp2").precision("bf16") == "bf16"
    assert stack("fsdp2").mixed_policy


def test_every_rule_is_documented():
    """Every field of a stack is told in its docstring."""
    assert [each.name for each in dataclasses.fields(Stack) if f"{each.name}" not in (Stack.__doc__ or "")] == []
