from torchledger.cli.plan_options import LAUNCHERS
from torchledger.machine import parse_cluster
from torchledger.planner.launch import TARGETS, launch
from torchledger.spec import Recipe, Strategy, presets
from torchledger.view.plan_launch import launch_screen, launch_to_dict
from torchledger.view.terminal import draw


def of(target):
    strategy = Strategy("megatron", data_parallel=2, tensor_parallel=4, micro_batch_size=1)
    return launch(presets.get("llama-3-8b"), Recipe(batch_size=8), strategy, parse_cluster("h100x8"), target)


def test_the_command_stands_as_it_is_typed():
    """Every line of the command is on the screen, indented alike."""
    megatron = of("megatron")
    text = draw(launch_screen(megatron))
    for line in megatron.command.split("\n"):
        assert line in text
    assert "tensor-model-parallel-size 4" in text


def test_what_cannot_be_stands_before_the_command():
    """Adapters are no flag: said before the command is read, and again in its title."""
    strategy = Strategy("megatron", data_parallel=8, micro_batch_size=1)
    recipe = Recipe(batch_size=8, lora_rank=16)
    text = draw(launch_screen(launch(presets.get("llama-3-8b"), recipe, strategy, parse_cluster("h100x8"), "megatron")))
    assert text.index("cannot run the layout as planned") < text.index("launch with megatron, not as planned")
    assert "not as planned" not in draw(launch_screen(of("megatron")))


def test_where_the_flags_come_from():
    """The source and its date stand below."""
    assert of("megatron").source in draw(launch_screen(of("megatron")))


def test_the_json_has_the_words():
    """Words, files, reasons and notes, as the planner gives them."""
    answer = launch_to_dict(of("torchtitan"))
    assert answer["target"] == "torchtitan"
    assert answer["words"][0] == "torchrun"
    assert answer["cannot"] == list(of("torchtitan").cannot)


def test_every_stack_can_be_asked_for():
    """The option offers what the planner can say."""
    assert set(LAUNCHERS) == set(TARGETS)
