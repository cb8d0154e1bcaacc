"""A layout said to a stack reads back as the same layout, or the answer says what the stack cannot do."""

import json
import random
import re
import runpy
import shlex
from dataclasses import replace

import pytest
from launched import CLUSTER, DENSE, after, comparable, drawn

from torchledger.machine import parse_cluster
from torchledger.planner import PlanError
from torchledger.planner.launch import TARGETS, HostsUnfilled, default_launch, launch
from torchledger.spec import NormSpec, OptimizerSpec, Recipe, Strategy


def read_torchtitan(said, num_ranks):
    """What torchtitan would make of the flags."""
    words = after(said.words, "torchtitan.train")
    flags, bare = {}, []
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            bare.append(word)
            continue
        flags[word[2:]] = words.pop(0) if words and re.fullmatch(r"[^-].*", words[0]) and ":" not in words[0] else True
    number = {name.partition(".")[2]: int(value) for name, value in flags.items() if str(value).isdigit()}
    shard, replicate = number["data_parallel_shard_degree"], number["data_parallel_replicate_degree"]
    tp, pp, cp = (number[f"{kind}_parallel_degree"] for kind in ("tensor", "pipeline", "context"))
    assert shard * replicate * tp * pp * cp == num_ranks
    is_sharded = "parallelism.fsdp_reshard_after_forward" in flags
    schedule = flags.get("parallelism.pipeline_parallel_schedule", "1F1B")
    length = number["max_context_length"]
    chunks = 1
    if pp > 1:
        chunks = -(-DENSE.num_layers // number["pipeline_parallel_layers_per_stage"]) // pp
    strategy = Strategy(
        stack="megatron",
        data_parallel=shard * replicate,
        shard_level=3 if is_sharded else 0,
        shard_group=shard if is_sharded and replicate > 1 else 0,
        reshard=flags.get("parallelism.fsdp_reshard_after_forward", "always") == "always",
        tensor_parallel=tp,
        sequence_parallel="parallelism.enable_sequence_parallel" in flags,
        pipeline_parallel=pp,
        schedule={"GPipe": "gpipe", "1F1B": "1f1b", "Interleaved1F1B": "interleaved"}[schedule],
        virtual_stages=chunks,
        context_parallel=cp,
        context_kind="all-gather" if cp > 1 else "ring",
        expert_parallel=number.get("expert_parallel_degree", 1),
        micro_batch_size=number["num_tokens_per_microbatch_per_dp_rank"] // length,
        overlap_tensor="compile.enable_async_tensor_parallel" in flags,
    )
    recompute = bare[-1].partition(":")[2]
    return strategy, (number["num_tokens_per_train_step"] // length, length, recompute)


def test_torchtitan_flags_read_back_as_the_layout():
    """The same for torchtitan, whose context parallelism gathers and whose sharding is all or nothing."""
    num_exact = 0
    for seed in range(400):
        spec, recipe, strategy = drawn(seed)
        level = random.Random(seed).choice((0, 3, 3))
        strategy = replace(strategy, shard_level=level, shard_group=strategy.shard_group if level else 0)
        said = launch(spec, recipe, strategy, CLUSTER, "torchtitan")
        if said.is_exact:
            num_exact += 1
            read, asked = read_torchtitan(said, strategy.num_ranks)
            assert comparable(read) == replace(comparable(strategy), expert_tensor_parallel=0)
            assert asked == (recipe.batch_size, recipe.sequence_length, recipe.recompute)
    assert num_exact > 15


@pytest.mark.parametrize(
    ("target", "change", "asked", "reason"),
    [
        ("megatron", {"pipeline_parallel": 2, "schedule": "zero-bubble"}, {}, "1F1B and interleaved"),
        ("megatron", {"shard_level": 3, "reshard": False}, {}, "given back"),
        ("megatron", {"shard_level": 3, "prefetch": 2}, {}, "layers ahead"),
        ("megatron", {"shard_level": 2}, {"optimizer": OptimizerSpec(kind="lion")}, "no optimizer lion (adamw, sgd)"),
        ("megatron", {}, {"precision": "bf16-pure"}, "precision bf16-pure"),
        ("megatron", {}, {"lora_rank": 8}, "rank 8"),
        ("megatron", {}, {"optimizer": OptimizerSpec(kind="adafactor")}, "adafactor"),
        ("torchtitan", {"shard_level": 1}, {}, "not level 1"),
        ("torchtitan", {"shard_level": 3, "context_parallel": 2, "context_kind": "ulysses"}, {}, "ulysses"),
        ("torchtitan", {"pipeline_parallel": 4, "schedule": "dualpipe"}, {}, "dualpipe"),
        ("torchtitan", {"pipeline_parallel": 2, "stage_layers": (11, 13)}, {}, "stages of given sizes"),
        ("torchtitan", {}, {"recompute": "selective"}, "second matmul"),
        ("torchtitan", {}, {"precision": "fp8"}, "fp8"),
        ("torchtitan", {"overlap_data": False}, {}, "always overlap"),
        ("fsdp2", {"tensor_parallel": 2, "shard_level": 3}, {}, "tensor parallel over 2"),
        ("fsdp2", {"shard_level": 2}, {}, "not level 2"),
        ("deepspeed", {"pipeline_parallel": 2}, {}, "pipeline parallel over 2"),
        ("deepspeed", {}, {"recompute": "full"}, "full recompute"),
        ("torchledger", {"data_parallel": 8, "shard_level": 2}, {}, "no level 2"),
        ("torchledger", {"pipeline_parallel": 2}, {}, "no pipeline parallelism"),
        ("torchledger", {"tensor_parallel": 2, "overlap_tensor": True}, {}, "no tensor parallel collective"),
    ],
)
def test_what_a_stack_cannot_do_is_a_named_reason(target, change, asked, reason):
    """Nothing that the layout has is dropped in silence."""
    strategy = replace(Strategy(micro_batch_size=1), **change)
    recipe = replace(Recipe(batch_size=8, sequence_length=2048, precision="bf16"), **asked)
    said = launch(DENSE, recipe, strategy, CLUSTER, target)
    assert any(reason in each for each in said.cannot), said.cannot
    assert not said.is_exact


def test_a_layout_is_launched_with_its_own_stack_where_that_can():
    """Megatron's layouts with Megatron-LM's flags; a stack without flags here has no command."""
    strategy = Strategy("megatron", data_parallel=8, shard_level=1, micro_batch_size=1)
    recipe = Recipe(batch_size=8, sequence_length=2048, precision="bf16")
    own = default_launch(DENSE, recipe, strategy, CLUSTER)
    assert own == launch(DENSE, recipe, strategy, CLUSTER, "megatron")
    assert own.is_exact
    for name in ("megatron-fsdp", "megatron-deepep", "megatron-a2a-overlap"):  # the same program
        assert default_launch(DENSE, recipe, replace(strategy, stack=name), CLUSTER).target == "megatron"
    assert default_launch(DENSE, recipe, replace(strategy, stack="maxtext"), CLUSTER) is None


def test_where_its_own_stack_cannot_another_launches_it():
    """Full recompute is no setting of DeepSpeed and is one of torchtitan: the note says why it is not DeepSpeed."""
    strategy = Strategy("deepspeed", data_parallel=8, shard_level=3, micro_batch_size=1)
    recipe = Recipe(batch_size=8, sequence_length=2048, precision="bf16", recompute="full")
    assert not launch(DENSE, recipe, strategy, CLUSTER, "deepspeed").is_exact
    other = default_launch(DENSE, recipe, strategy, CLUSTER)
    assert other.is_exact
    assert other.target == "torchtitan"
    assert "deepspeed cannot run the layout as planned" in other.notes[0]
    assert "full recompute" in other.notes[0]


def test_where_no_stack_can_it_is_its_own_with_what_it_cannot():
    """Half of the activations in host memory is a flag of none: the plan's own stack, not exact, with the reason."""
    strategy = Strategy("megatron", data_parallel=8, micro_batch_size=1)
    recipe = Recipe(batch_size=8, sequence_length=2048, precision="bf16", offload_activations=0.5)
    assert not any(launch(DENSE, recipe, strategy, CLUSTER, target).is_exact for target in TARGETS)
    own = default_launch(DENSE, recipe, strategy, CLUSTER)
    assert own.target == "megatron"
    assert any("50% of the activations" in each for each in own.cannot)


def test_the_module_for_fsdp2_is_python_and_says_the_mesh():
    """HSDP over 8 ranks in groups of 4 is a mesh of 2 by 4, and full recompute wraps each layer first."""
    strategy = Strategy(data_parallel=8, shard_level=3, shard_group=4, reshard=False, micro_batch_size=2)
    recipe = Recipe(batch_size=64, sequence_length=2048, precision="bf16", recompute="full")
    said = launch(DENSE, recipe, strategy, CLUSTER, "fsdp2")
    assert said.is_exact
    text = said.files["shard_model.py"]
    compile(text, "shard_model.py", "exec")
    assert '(2, 4), mesh_dim_names=("replicate", "shard")' in text
    assert "reshard_after_forward=False" in text
    assert "NUM_MICRO_BATCHES = 4" in text  # 64 sequences over 8 ranks, 2 at once
    assert text.index("apply_activation_checkpointing(model") < text.index("fully_shard(layer")
    assert said.words == ("torchrun", "--standalone", "--nproc-per-node=8", "train.py")


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A process group of this process, on the CPU, whatever device the written file asks for."""
    from torch import distributed
    from torch.distributed import device_mesh

    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    mesh = device_mesh.init_device_mesh
    monkeypatch.setattr(device_mesh, "init_device_mesh", lambda _device, *sizes, **names: mesh("cpu", *sizes, **names))
    yield
    distributed.destroy_process_group()


def shard_model_of(recompute, folder):
    """The function of the file that is written for FSDP2."""
    recipe = Recipe(batch_size=2, sequence_length=2048, precision="bf16", recompute=recompute)
    said = launch(DENSE, recipe, Strategy(shard_level=3, micro_batch_size=1), CLUSTER, "fsdp2")
    path = folder / "shard_model.py"
    path.write_text(said.files[path.name], encoding="utf-8")
    return runpy.run_path(str(path))["shard_model"]


@pytest.mark.parametrize("given", ["of the model", "a list"])
@pytest.mark.parametrize(("recompute", "times"), [("none", 1), ("full", 2)])
@pytest.mark.usefixtures("alone")
def test_the_module_for_fsdp2_runs_each_layer_again_where_asked(recompute, times, given, tmp_path):
    """A step runs each of 3 layers once, and once more where the backward pass recomputes; all 3 are sharded."""
    import torch
    from torch import nn
    from torch.distributed.fsdp import FSDPModule

    layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)) for _ in range(3))
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(*layers))
    calls = []
    for layer in layers:
        layer[0].register_forward_pre_hook(lambda *_: calls.append(1))
    given_layers = model[1] if given == "of the model" else list(layers)
    shard_model_of(recompute, tmp_path)(model, given_layers)(torch.randn(2, 4)).sum().backward()
    assert len(calls) == 3 * times
    assert sum(isinstance(each, FSDPModule) for each in model.modules()) == 3 + 1


@pytest.mark.usefixtures("alone")
def test_the_module_for_fsdp2_refuses_layers_that_it_cannot_wrap(tmp_path):
    """A layer that is no part of the model would silently not be run again: 1 given, 0 found is an error."""
    from torch import nn

    with pytest.raises(ValueError, match="1 layers were given and 0 are below the model"):
        shard_model_of("full", tmp_path)(nn.Sequential(nn.Linear(4, 4)), [nn.Linear(4, 4)])


def test_the_settings_for_deepspeed_agree_with_themselves():
    """DeepSpeed insists that train_batch_size = micro batch · accumulation steps · data parallel ranks."""
    strategy = Strategy(data_parallel=8, shard_level=3, shard_group=4, micro_batch_size=2)
    recipe = Recipe(batch_size=64, precision="bf16-master", offload_optimizer=True)
    said = launch(DENSE, recipe, strategy, CLUSTER, "deepspeed")
    assert said.is_exact
    settings = json.loads(said.files["deepspeed.json"])
    assert (
        settings["train_batch_size"]
        == settings["train_micro_batch_size_per_gpu"] * settings["gradient_accumulation_steps"] * 8
    )
    zero = settings["zero_optimization"]
    assert (zero["stage"], zero["mics_shard_size"], zero["offload_optimizer"]["device"]) == (3, 4, "cpu")
    assert settings["bf16"] == {"enabled": True}


def test_our_own_train_takes_the_settings():
    """The words after the run's file are settings that a run's configuration accepts, and mean the recipe."""
    from torchledger import config

    recipe = Recipe(
        batch_size=16, sequence_length=256, precision="bf16-master", recompute="full", recompute_every=2,
        num_tokens=1_000_000, lora_rank=8, lora_targets=("query", "value"), trainable=("layers.1-3",), loss_chunk=64,
        document_mask=True, optimizer=OptimizerSpec(kind="muon", learning_rate=2e-3, schedule="wsd"),
    )  # fmt: skip
    said = launch(DENSE, recipe, Strategy(micro_batch_size=4), CLUSTER, "torchledger")
    assert said.is_exact
    assert said.words[:5] == ("python", "-m", "torchledger", "train", "run.toml")
    sets = said.words[6::2]
    assert set(said.words[5::2]) == {"--set"}
    read = config.load(None, Recipe, table={}, sets=[each.removeprefix("recipe.") for each in sets]).value
    assert read == replace(recipe, accumulation_steps=4)  # 16 sequences, 4 at once


def test_our_own_train_takes_the_layout():
    """Started by torchrun on so many ranks, with settings that mean the layout, and micro-batches that mean its."""
    from torchledger import config

    layout = Strategy(data_parallel=4, shard_level=3, tensor_parallel=2, sequence_parallel=True, micro_batch_size=2)
    said = launch(DENSE, Recipe(batch_size=16, sequence_length=256, precision="bf16"), layout, CLUSTER, "torchledger")
    assert said.is_exact
    assert said.words[:3] == ("torchrun", "--standalone", "--nproc-per-node=8")
    sets = [each.removeprefix("strategy.") for each in said.words if each.startswith("strategy.")]
    assert config.load(None, Strategy, table={}, sets=sets).value == replace(layout, micro_batch_size=0)
    assert "recipe.accumulation_steps=2" in said.words  # 16 sequences over 4 replicas, 2 at once


def test_the_command_is_one_that_a_shell_reads():
    """Split by a shell, the shown command is the words; hosts of 8 start 8 processes each and meet at one of them."""
    strategy = Strategy(data_parallel=8, tensor_parallel=8, shard_level=3, sequence_parallel=True, micro_batch_size=1)
    recipe = Recipe(batch_size=64, sequence_length=2048, precision="bf16")
    said = launch(DENSE, recipe, strategy, CLUSTER, "torchtitan")
    assert tuple(shlex.split(said.command.replace("\\\n", " "))) == said.words
    assert said.words[3:6] == (
        "--rdzv-backend=c10d", "--rdzv-endpoint=${HEAD_NODE:?}:29500", "--rdzv-id=dense",
    )  # fmt: skip
    assert said.words[:3] == ("torchrun", "--nnodes=8", "--nproc-per-node=8")
    assert any("HEAD_NODE" in each for each in said.notes)
    fewer = launch(DENSE, recipe, strategy, CLUSTER, "torchtitan", chips_per_host=4)
    assert fewer.words[:3] == ("torchrun", "--nnodes=16", "--nproc-per-node=4")
    with pytest.raises(HostsUnfilled, match="do not fill hosts of 6") as raised:
        launch(DENSE, recipe, strategy, CLUSTER, "torchtitan", chips_per_host=6)
    assert (raised.value.filled, raised.value.full) == ("2, 4 or 8", "60 or 66")  # 64 / 6 lies between 10 and 11


def test_hosts_whose_size_nobody_knows_are_such_as_the_ranks_fill():
    """36 chips of a rack of 72 are 9 hosts of 4, as is said; 16 are 2 of 8; 6 are one host."""
    recipe = Recipe(batch_size=36 * 4, sequence_length=2048, precision="bf16")
    for number, words in ((36, ("9", "4")), (16, ("2", "8"))):
        rack = parse_cluster(f"gb200x{number}")
        assert rack.chips_per_island > 8
        said = launch(DENSE, recipe, Strategy(data_parallel=number, shard_level=3), rack, "fsdp2")
        assert said.words[1:3] == (f"--nnodes={words[0]}", f"--nproc-per-node={words[1]}")
        assert f"hosts have {words[1]} chips each" in said.notes
    six = launch(DENSE, recipe, Strategy(data_parallel=6, shard_level=3), parse_cluster("gb200x6"), "fsdp2")
    assert six.words[:3] == ("torchrun", "--standalone", "--nproc-per-node=6")


def test_a_model_that_flags_cannot_say_is_refused_by_name():
    """Soft caps, sandwich norms and odd biases are reasons, not silence."""
    odd = replace(
        DENSE,
        norm=NormSpec(placement="sandwich"),
        final_logit_soft_cap=30.0,
        attention=replace(DENSE.attention, query_bias=True, window_pattern=(4096, 0)),
    )
    said = launch(odd, Recipe(precision="bf16"), Strategy(), CLUSTER, "megatron")
    for word in ("soft caps", "sandwich", "biases", "windowed"):
        assert any(word in each for each in said.cannot), word


@pytest.mark.parametrize("target", TARGETS)
def test_flags_say_where_they_were_read(target):
    """Every stack's words have a source and a date."""
    said = launch(DENSE, Recipe(batch_size=8, precision="bf16"), Strategy(), CLUSTER, target)
    assert re.search(r"\(20\d\d-\d\d-\d\d\)$", said.source)
    assert said.notes


def test_an_unknown_stack_is_refused_with_the_known_ones():
    """The message has the nearest name and all of them."""
    with pytest.raises(PlanError, match=r"did you mean.*megatron.*there are torchtitan"):
        launch(DENSE, Recipe(), Strategy(), CLUSTER, "megatrn")
