import itertools
import sys

import pytest

from torchledger.cli import progress
from torchledger.cli.plan_asked import read_layout
from torchledger.cli.plan_searched import axes_of, sizes_of
from torchledger.config import ConfigError
from torchledger.planner.search_costs import LayoutCosts

#: A small grid: two layers of a toy on four chips.
TOY = """
[model]
vocab_size = 512
max_sequence_length = 256
num_layers = 4
hidden_size = 256
[model.attention]
num_heads = 4
[model.mlp]
intermediate_size = 512
"""


@pytest.fixture
def toy(tmp_path):
    path = tmp_path / "toy.toml"
    path.write_text(TOY, encoding="utf-8")
    return path


@pytest.fixture
def question(toy):
    return ("plan", toy, "--on", "h100x4", "--batch", "8", "--tokens", "1M")


def test_without_a_layout_the_best_is_planned(ask, question):
    """The best of the search is the plan below it, to the last digit; every point was considered."""
    answer = ask(*question, "--json").json["answer"]
    best = answer["search"]["best"][0]
    assert answer["step_s"] == best["step_s"]
    assert answer["peak_bytes"] == best["peak_bytes"]
    assert answer["search"]["num_considered"] == answer["search"]["num_points"] > 100


def test_points_kept_and_lost_are_all_points(ask, question):
    """The ranked, those on the front and the losers by reason add up to the grid."""
    found = ask(*question, "--json").json["answer"]["search"]
    kept = found["best"] + [each for each in found["pareto_memory"] if each not in found["best"]]
    assert len(kept) + sum(each["num_points"] for each in found["losses"]) == found["num_points"]


def test_the_screen_ranks_and_gives_reasons(ask, question):
    """The answer first, then the ranking, the reasons of the losers, and how the winner is launched."""
    out = ask(*question, "--top", "3").out
    assert "fits" in out.splitlines()[0]
    for title in ("the best layouts", "why the others lost", "axes of the grid", "launch with megatron"):
        assert f"\n{title}\n" in out
    assert len(out.split("the best layouts\n")[1].split("\n\n")[0].splitlines()) == 1 + 3 + 1


@pytest.mark.parametrize("as_json", [False, True])
def test_where_every_layout_breaks_a_rule_the_reasons_are_the_answer(ask, toy, as_json):
    """An A100 has no FP8: exit 3, and every layout of the grid is lost to a reason that is shown."""
    words = ("plan", toy, "--on", "a100x4", "--batch", "8", "--precision", "fp8", *(["--json"] if as_json else []))
    answer = ask(*words)
    assert answer.code == 3
    assert "every one breaks a rule" in answer.err
    if as_json:
        told = answer.json["answer"]
        assert told["fits"] is False
        assert sum(each["num_points"] for each in told["search"]["losses"]) == told["search"]["num_points"]
    else:
        assert "no layout can be" in answer.out.splitlines()[0]
        assert "precision fp8 needs fp8" in answer.out


def test_what_is_given_stays_as_it_is(ask, question):
    """`--search --tp 2`: every layout of the ranking has two tensor parallel ranks."""
    found = ask(*question, "--search", "--tp", "2", "--json").json["answer"]["search"]
    assert {each["strategy"]["tensor_parallel"] for each in found["best"]} == {2}


def test_several_sizes_give_a_front_of_days_against_money(ask, question):
    """Each number of chips with its best layout; the plan is of the fastest."""
    answer = ask(*question, "--sizes", "2,4", "--price", "$2", "--json").json["answer"]
    offers = answer["search"]["pareto_money"]
    assert {each["num_chips"] for each in offers} <= {2, 4}
    for each in offers:
        assert each["money"] == pytest.approx(2 * each["chip_hours"])


def test_days_of_the_offers_are_those_of_the_plan(ask, question):
    """The size that is planned has the headline's days, chip-hours and money in the front, losses in."""
    answer = ask(*question, "--sizes", "2,4", "--price", "$2", "--goodput", "0.8", "--json").json["answer"]
    offers = {each["num_chips"]: each for each in answer["search"]["pareto_money"]}
    planned = offers[answer["search"]["best"][0]["strategy"]["data_parallel"]]
    for name in ("days", "chip_hours", "money"):
        assert planned[name] == answer[name] > 0


def test_failures_of_a_whole_cluster_are_of_one_size(ask, question):
    """`--failure-every` is of all chips together: with other sizes it is refused, with what to say instead."""
    answer = ask(*question, "--sizes", "2,4", "--failure-every", "12h")
    assert answer.code == 2
    assert "--goodput" in answer.err
    assert ask(*question, "--sizes", "4", "--failure-every", "12h").code == 0


def test_sizes_have_the_number_that_is_said_beside_them(ask, question):
    """`--on ...x4 --sizes 2,8` says two things of the chips; with 4 among the sizes, or no number, it says one."""
    answer = ask(*question, "--sizes", "2,8")
    assert answer.code == 2
    assert "--sizes: has no 4" in answer.err


def test_precision_and_offload_are_axes(ask, question):
    """Either option searches; points multiply with its choices, and the screen names what a layout has of them."""
    alone = ask(*question, "--json").json["answer"]["search"]
    words = ("--search-precision", "bf16,fp8", "--search-offload", "none,optimizer")
    found = ask(*question, "--tp", "1", *words, "--json").json["answer"]["search"]
    assert found["axes"]["precision"] == "bf16, fp8"
    assert found["axes"]["offload"] == "nothing; optimizer"
    assert (
        found["num_considered"]
        == found["num_points"]
        == 4 * ask(*question, "--search", "--tp", "1", "--json").json["answer"]["search"]["num_points"]
        < 4 * alone["num_points"]
    )
    assert any(each["offload_optimizer"] for each in found["pareto_memory"])
    out = ask(*question, *words).out
    assert " offload optimizer" in out
    assert "--precision says otherwise" not in out


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_long_search_shows_how_far_it_is(ask, question, monkeypatch, is_terminal):
    """With a clock of a second a look there is a bar on a terminal, taken away at the end; in a log nothing."""
    clock = itertools.count()
    monkeypatch.setattr(progress.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    answer = ask(*question)
    assert ("layouts considered" in answer.err) == is_terminal
    if is_terminal:
        assert answer.err.endswith("\r\x1b[K")
    else:
        assert answer.err == ""


def test_a_search_that_is_interrupted_exits_130(ask, question, monkeypatch):
    """Ctrl-C in the middle of a search: one word on stderr, no half answer."""

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(LayoutCosts, "estimate", interrupt)
    answer = ask(*question)
    assert (answer.code, answer.out) == (130, "")
    assert "interrupted" in answer.err


def test_the_launch_is_of_a_stack_that_can(ask, question):
    """Adapters have no flag anywhere: the warning comes before the command. A given stack is the one that is shown."""
    out = ask(*question, "--set", "recipe.lora_rank=8").out
    assert out.index("megatron cannot run the layout as planned") < out.index("launch with megatron, not as planned")
    assert "launch with torchtitan" in ask(*question, "--launch", "torchtitan").out


def test_nothing_fits_exits_3_and_says_what_comes_nearest(ask):
    """A model of 405 billion parameters on one GPU: exit 3, and how far the nearest is from fitting."""
    answer = ask("plan", "llama-3.1-405b", "--on", "h100", "--batch", "1")
    assert answer.code == 3
    assert "no layout fits" in answer.err
    assert "too much" in answer.err


def test_axes_have_one_value_where_something_is_fixed(toy):
    """Sizes, schedule and recompute that were given have one choice; the others are open."""
    options = {
        "cluster": "h100x4",
        "search": True,
        "pp": "2",
        "schedule": "1f1b",
        "recompute": "full",
        "micro_batch": "1",
    }
    axes = axes_of(read_layout(str(toy), options))
    assert axes.pipeline_parallel == (2,)
    assert axes.schedules == ("1f1b",)
    assert axes.recomputes == ("full",)
    assert axes.micro_batch_sizes == (1,)
    assert axes.tensor_parallel == ()


def test_what_no_search_can_fix_is_refused(toy):
    """Groups of replicas and layers of each stage have no axis of their own: both are named."""
    words = {"cluster": "h100x4", "search": True, "shard_group": "2", "sets": ("strategy.stage_layers=[4]",)}
    with pytest.raises(ConfigError, match="2 mistakes") as caught:
        axes_of(read_layout(str(toy), words))
    assert "shard_group" in str(caught.value)


def test_ranks_and_switches_that_are_given_stay(ask, question):
    """`--search --dp 2 --sequence-parallel`: two replicas everywhere, tokens split wherever tensor ranks are."""
    words = ("--search", "--dp", "2", "--sequence-parallel", "--set", "strategy.reshard=false", "--stack", "fsdp2")
    found = ask(*question, *words, "--json").json["answer"]["search"]
    kept = [each["strategy"] for each in (*found["best"], *found["pareto_memory"])]
    assert {each["data_parallel"] for each in kept} == {2}
    assert all(each["sequence_parallel"] == (each["tensor_parallel"] > 1) for each in kept)
    assert not any(each["reshard"] for each in kept if each["shard_level"] == 3)
    assert found["axes"]["sequence parallel"] == "yes"


def test_sizes_are_numbers_of_chips():
    """Read as counts, in order, each once; what is none is told."""
    assert sizes_of("1k,256,256") == (256, 1000)
    with pytest.raises(ConfigError, match="2 mistakes"):
        sizes_of("many,0")


@pytest.mark.parametrize(
    "words", [("--on", "h100x12", "--batch", "48"), ("--on", "h100", "--sizes", "12", "--batch", "48")]
)
def test_chips_that_fill_no_hosts_lose_the_command_and_nothing_else(ask, toy, words):
    """12 chips are no multiple of a host's 8: the answer stands, and one line says why no command launches it."""
    asked = ("plan", toy, "--tokens", "1M", *words)
    told = ask(*asked)
    assert told.code == 0
    assert "\nno launch command: 12 ranks do not fill hosts of 8 chips; say how many" in told.out
    answer = ask(*asked, "--json").json["answer"]
    assert answer["no_launch"].startswith("12 ranks do not fill hosts of 8 chips")
    assert "launch" not in answer
    assert ask(*asked, "--launch", "megatron").code == 2
    assert "--nproc-per-node=4" in ask(*asked, "--island", "4").out


def test_chunks_that_are_given_stay_as_they_are(ask, toy):
    """With 2 chunks a stage asked for only orders that have 2 are layouts: the best is that of `interleaved`."""
    asked = ("plan", toy, "--on", "h100x4", "--batch", "8", "--search", "--pp", "2", "--json")
    found = ask(*asked, "--vp", "2").json["answer"]["search"]
    told = ask(*asked, "--vp", "2", "--schedule", "interleaved").json["answer"]["search"]
    assert found["best"] == told["best"]
    assert {each["strategy"]["virtual_stages"] for each in found["best"] + found["pareto_memory"]} == {2}
    assert "1f1b has one chunk a stage, not 2" in {each["reason"] for each in found["losses"]}


def test_chunks_without_a_pipeline_have_the_reason(ask, toy):
    """3 chunks of no pipeline are no layout, searched for or not: exit code 3 with the rule, never one chunk."""
    told = ask("plan", toy, "--on", "h100x4", "--batch", "8", "--search", "--pp", "1", "--vp", "3")
    assert told.code == 3
    assert "virtual_stages 3 without a pipeline" in told.out


def test_experts_that_a_model_has_not_are_not_dropped(ask, toy):
    """Expert parallel ranks of a dense model break a rule in a search as they do without one."""
    told = ask("plan", toy, "--on", "h100x4", "--batch", "8", "--search", "--ep", "2")
    assert told.code == 3
    assert "toy has no experts to spread over expert_parallel 2" in told.out


@pytest.mark.parametrize("words", [("--tp", "3"), ("--tp", "4", "--pp", "2"), ("--dp", "3")])
def test_ranks_that_do_not_fill_the_chips_have_one_reason(ask, toy, words):
    """4 chips have no layout of 3 or of 8 ranks: a search says what a layout is told, exit code 2, no empty grid."""
    asked = ("plan", toy, "--on", "h100x4", "--batch", "8", *words)
    told, searched = ask(*asked), ask(*asked, "--search")
    reason = next(each for each in told.err.replace("error: plan: ", "").splitlines() if "on 4 chips" in each).strip()
    assert (told.code, searched.code, searched.out) == (2, 2, "")
    assert reason in searched.err


def test_ranks_are_refused_only_where_no_number_of_chips_has_them(ask, toy):
    """3 tensor parallel ranks are none of 4 and of 8 chips, and are some of 12: the grid is not empty."""
    asked = ("plan", toy, "--on", "h100", "--batch", "8", "--tokens", "1M", "--tp", "3")
    told = ask(*asked, "--sizes", "4,8")
    assert told.code == 2
    assert "= 6 ranks on 8 chips" in told.err
    assert "does not divide a batch" not in told.err  # nobody gave data parallel ranks
    assert "tensor_parallel 3 does not divide 4 attention heads" in ask(*asked, "--sizes", "4,12").out
