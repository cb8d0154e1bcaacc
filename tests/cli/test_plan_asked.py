import pytest

from torchledger.cli.plan_asked import read_layout
from torchledger.config import ConfigError

LLAMA = {"cluster": "h100x64", "tp": "8", "pp": "2"}

FILE = """
[model]
vocab_size = 64
max_sequence_length = 16
num_layers = 2
hidden_size = 8
[model.attention]
num_heads = 2
[model.mlp]
intermediate_size = 16

[recipe]
batch_size = 8
num_tokens = "1M"

[strategy]
stack = "megatron"
tensor_parallel = 2

[cluster]
on = "h100x8"
network = "100Gb/s"
"""


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


def mistakes(model, **options):
    """What is wrong, all of it."""
    with pytest.raises(ConfigError) as caught:
        read_layout(model, options)
    return str(caught.value)


def test_options_are_fields_of_the_question():
    """Each flag sets its field; data parallel ranks are what the others leave: 64 / (8 · 2) = 4."""
    asked = read_layout("llama-3-8b", {**LLAMA, "zero": "1", "batch": "64", "sequence": "4096", "recompute": "full"})
    assert asked.strategy.tensor_parallel == 8
    assert asked.strategy.data_parallel == 64 // (8 * 2)
    assert asked.strategy.shard_level == 1
    assert (asked.recipe.batch_size, asked.recipe.sequence_length) == (64, 4096)
    assert asked.recipe.recompute == "full"
    assert not asked.searches


def test_a_file_says_all_of_it(plan_file):
    """Model, recipe, strategy and cluster of one file, its texts read by their units."""
    asked = read_layout(None, {"config_file": plan_file})
    assert asked.spec.num_layers == 2
    assert asked.recipe.num_tokens == 10**6
    assert asked.strategy.tensor_parallel == 2
    assert asked.strategy.data_parallel == 4
    assert asked.cluster.network.bytes_per_s_per_direction == 100e9 / 8


def test_options_and_sets_are_stronger_than_the_file(plan_file):
    """From weak to strong: the file, options, `--set`."""
    asked = read_layout(
        None,
        {"config_file": plan_file, "batch": "16", "tp": "1", "sets": ("model.num_layers=4", "recipe.batch_size=32")},
    )
    assert asked.strategy.tensor_parallel == 1
    assert asked.recipe.batch_size == 32
    assert asked.spec.num_layers == 4


def test_a_file_may_name_its_model(tmp_path):
    """`model = "gpt2"` in a file is the preset, and `--set` changes it."""
    path = tmp_path / "plan.toml"
    path.write_text('model = "gpt2"\n[cluster]\non = "h100x8"\n', encoding="utf-8")
    asked = read_layout(None, {"config_file": path, "sets": ("model.num_layers=6",)})
    assert (asked.spec.name, asked.spec.num_layers, asked.spec.hidden_size) == ("gpt2", 6, 768)


def test_without_a_layout_it_is_searched_for():
    """A stack and a micro-batch are no layout."""
    assert read_layout("gpt2", {"cluster": "h100x8"}).searches
    assert read_layout("gpt2", {"cluster": "h100x8", "stack": "megatron", "micro_batch": "2"}).searches
    assert not read_layout("gpt2", {"cluster": "h100x8", "dp": "8"}).searches


def test_a_search_knows_what_is_fixed():
    """`--search --tp 8` searches with tp 8."""
    asked = read_layout("llama-3-8b", {"cluster": "h100x64", "tp": "8", "search": True})
    assert asked.searches
    assert asked.fixed == {"tensor_parallel"}


def test_all_mistakes_are_told_at_once():
    """An unknown model, an unknown chip, a size that is no number and a schedule that does not exist: four lines."""
    told = mistakes("lama-3-8b", cluster="h1oox8", tp="eight", schedule="1f2b")
    assert "4 mistakes" in told
    for part in ("lama-3-8b", "h1oo", "--tp", "1f2b"):
        assert part in told


def test_rules_of_the_layout_are_told_beside_values_that_make_no_sense():
    """A ZeRO level of 7 and 3 ranks of 32 heads are two mistakes; of no rule that reads the level anything is said."""
    told = mistakes("llama-3-8b", cluster="h100x48", tp="3", zero="7", batch="32", stack="megatron")
    assert "must be 0, 1, 2 or 3" in told
    assert "tensor_parallel 3 does not divide 32 attention heads" in told
    assert "no shard_level" not in told
    told = mistakes("llama-3-8b", cluster="h100x48", tp="3", batch="0", stack="megatron")
    assert "32 attention heads" in told  # whatever the batch is
    assert "micro-batch" not in told  # what 0 sequences cannot be divided by, others may
    told = mistakes("llama-3-8b", cluster="h100x16", tp="0", pp="5", batch="64", stack="megatron")
    assert "data_parallel" not in told  # how many replicas are left is not known


def test_values_of_a_wrong_type_hide_nothing_that_is_wrong_whatever_they_mean(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(
        'preset = "gpt2"\n[recipe]\nbatch = 8\nbatch_size = -3\nsequence_length = 1.5\n[recipe.optimizer]\nbeta1 = 1.5'
        '\n[strategy]\ntensor_parallel = 5\nmicro_batch_size = "two"\n[cluster]\non = "h100x7"\n',
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as refused:
        read_layout(None, {"config_file": path})
    assert [
        (place, text.split(";")[0]) for place, text in refused.value.mistakes if not text.startswith("expected")
    ] == [
        ("recipe.batch", "unknown key"),
        ("--sequence", "1.5 is not a count: it is not a whole number"),
        ("--batch", "must be at least 1, is -3"),
        ("recipe.optimizer.beta1", "must be at least 0 and below 1, is 1.5"),
        ("", "tensor_parallel 5 on 7 chips"),
        ("", "tensor_parallel 5 does not divide 12 attention heads"),
        ("", "tensor_parallel 5 does not divide the MLP's width 3072"),
    ]


def test_a_rule_that_an_unread_value_may_keep_is_not_told(plan_file):
    told = mistakes(None, config_file=plan_file, sets=("recipe.batch_size=half", "strategy.data_parallel=4"))
    assert told.startswith("plan: --batch: ")  # 4 replicas may well divide the batch that was meant
    told = mistakes(None, config_file=plan_file, sets=("model.attention.num_heads=many", "strategy.tensor_parallel=3"))
    assert told.startswith("plan: 3 mistakes\n  model.attention.num_heads: expected a whole number, got 'many'")
    assert "2 · tensor_parallel 3" in told  # ranks, of 8 chips
    assert "tensor_parallel 3 does not divide the MLP's width 16" in told


def test_nothing_is_told_of_what_stands_in_for_values_that_cannot_be_read(plan_file):
    """What was meant by `half` may be divided by 4, and 4 ranks may have been meant by `some`."""
    sets = ("recipe.batch_size=half", "strategy.data_parallel=4", "model.attention.num_heads=many")
    told = mistakes(None, config_file=plan_file, sets=sets)
    assert "2 mistakes" in told
    text = FILE.replace("num_heads = 2", 'num_heads = "many"').replace("batch_size = 8", 'batch_size = "half"')
    plan_file.write_text(text.replace("tensor_parallel = 2", 'tensor_parallel = 1\ndata_parallel = "some"'), "utf-8")
    assert mistakes(None, config_file=plan_file).startswith("plan: 3 mistakes\n")
    plan_file.write_text("model = 7\n[strategy]\ntensor_parallel = 2\n[cluster]\non = 8\n", "utf-8")
    assert mistakes(None, config_file=plan_file).startswith("plan: 2 mistakes\n")  # neither a head's size nor a chip's


@pytest.mark.parametrize("options", [{}, {"tp": "2", "batch": "8"}])
def test_what_is_no_table_is_told_and_not_passed_over(tmp_path, options):
    """`recipe = 5` says something that is not read: neither without options nor beside them is it left out."""
    path = tmp_path / "plan.toml"
    path.write_text('preset = "gpt2"\nrecipe = 5\nstrategy = [1]\n[cluster]\non = "h100x8"\n', encoding="utf-8")
    told = mistakes(None, config_file=path, **options)
    assert "2 mistakes" in told
    assert "recipe: expected a table (Recipe), got 5" in told
    assert "strategy: expected a table (Strategy), got a list of 1" in told


@pytest.mark.parametrize("others", [{}, {"sets": ("recipe.colour=3",)}])
def test_an_unknown_stack_hides_no_other_mistake(others):
    """Heads and chips that 3 does not divide are told beside it, whatever the stack's own rules are."""
    told = mistakes("llama-3-8b", cluster="h100x7", tp="3", schedule="dualpipe", stack="megatorn", **others)
    for part in (
        "did you mean 'megatron'?",
        "does not divide 32 attention heads",
        "on 7 chips",
        *others.get("sets", ()),
    ):
        assert part.partition("=")[0] in told
    assert "has no" not in told


def test_seven_chips_are_no_multiple_of_eight():
    """Seven chips under tp 8: the reason, and what would divide."""
    told = mistakes("llama-3-8b", cluster="h100x7", tp="8")
    assert "7 chips" in told
    assert "1 and 7" in told


def test_heads_that_do_not_divide_are_refused_with_what_would(plan_file):
    """40 heads over tp 16 is impossible; divisors of 40 near 16 are named."""
    sets = ("model.attention.num_heads=40", "model.hidden_size=640")
    told = mistakes(None, config_file=plan_file, tp="16", cluster="h100x16", sets=sets)
    assert "40 attention heads" in told
    assert "8, 10 and 20" in told


def test_a_model_and_a_file_with_one_is_one_too_many(plan_file):
    """Two models are a mistake, and so is none."""
    assert "given twice" in mistakes("gpt2", config_file=plan_file)
    assert "is missing" in mistakes(None, cluster="h100x8")


def test_chips_must_be_named():
    """A layout without chips says how to name them."""
    assert "--on h100x1024" in mistakes("gpt2", tp="1")


@pytest.mark.parametrize(
    ("name", "num_chips", "network"),
    [("dgx-h100x1024", 1024, None), ("h100x16", 16, None), ("h100", 8, None)],
)
def test_chips_may_be_named_in_many_ways(name, num_chips, network):
    """A known cluster with its number, chips with their number, and `--chips` for one without."""
    options = {"cluster": name, "dp": str(num_chips), "batch": str(num_chips)}
    if name == "h100":
        options["num_chips"] = num_chips
    assert read_layout("gpt2", options).cluster.num_chips == num_chips


def test_a_cluster_s_file_is_read(tmp_path):
    """`--on mine.toml` reads a cluster's file."""
    path = tmp_path / "mine.toml"
    path.write_text('chip = "h100"\nnum_chips = 16\nnetwork = "200Gb/s"\n', encoding="utf-8")
    cluster = read_layout("gpt2", {"cluster": str(path), "dp": "16"}).cluster
    assert cluster.num_chips == 16
    assert cluster.network.bytes_per_s_per_direction == 200e9 / 8


def test_islands_and_network_as_given():
    """--island and --network stand over what the chip's row says."""
    cluster = read_layout("gpt2", {"cluster": "h100x16", "dp": "16", "island": "4", "network": "50Gb/s"}).cluster
    assert cluster.chips_per_island == 4
    assert cluster.network.bytes_per_s_per_direction == 50e9 / 8


def test_what_only_a_napkin_has_is_refused():
    """Days are what a layout answers with: to give them is a mistake, not passed over."""
    told = mistakes("gpt2", cluster="h100x8", tp="1", days=30.0, money=(1e6, "USD"))
    assert "--days: says nothing of a layout" in told
    assert "--money" in told


def test_chips_of_the_user_s_own(tmp_path):
    """A catalog file of the user's is read before ours."""
    path = tmp_path / "mine.toml"
    path.write_text(
        '[file]\nvendor = "Acme"\ndate = "2026-11-30"\n\n[acme-1]\nextends = "h100-sxm"\nname = "Acme 1"\n'
        'confidence = "low"\nsource = "a rumour"\nnotes = "none"\n',
        encoding="utf-8",
    )
    assert (
        read_layout("gpt2", {"cluster": "acme-1x8", "catalog_files": (path,), "dp": "8"}).cluster.chip.name == "Acme 1"
    )


def test_expert_parallel_ranks_come_out_of_those_that_are_left():
    """64 chips over tp 4 leave 16 replicas, of which 8 share the experts; 7 cannot."""
    options = {"cluster": "h100x64", "tp": "4", "ep": "8"}
    assert read_layout("mixtral-8x7b", options).strategy.expert_parallel == 8
    assert "expert_parallel 7 · 4 ranks of each expert does not divide the 64 ranks" in mistakes(
        "mixtral-8x7b", **{**options, "ep": "7"}
    )


def test_expert_ranks_that_do_not_divide_hide_no_other_mistake():
    """Too many ranks, experts and layers that do not divide: each is told."""
    told = mistakes("mixtral-8x7b", cluster="h100x8", dp="16", tp="3", ep="7")
    for part in ("ranks on 8 chips", "tensor_parallel 3 does not divide 32", "expert_parallel 7 does not divide 8"):
        assert part in told


def test_the_napkin_s_word_for_sgd_with_momentum():
    """`--optimizer sgd-momentum` is SGD with a momentum of 0.9, which has a state."""
    asked = read_layout("gpt2", {"cluster": "h100x8", "dp": "8", "optimizer": "sgd-momentum"})
    assert (asked.recipe.optimizer.kind, asked.recipe.optimizer.momentum) == ("sgd", 0.9)
