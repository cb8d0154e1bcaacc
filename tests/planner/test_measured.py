"""Tables of measured runs become questions, or every reason why not."""

import pytest

from torchledger.planner.measured import MeasuredError, read_rows, read_table

ROW = {
    "model": "llama-3-8b",
    "chip": "h100",
    "chips": "16",
    "precision": "bf16",
    "seq": "8192",
    "tp": "2",
    "micro_batch": "1",
    "global_batch": "32",
    "recompute": "none",
    "stack": "megatron",
    "step_time_s": "2.5",
}


def _table(path, *rows, head=None):
    columns = head or list(dict.fromkeys(column for row in rows for column in row))
    lines = [",".join(columns), *(",".join(row.get(column, "") for column in columns) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _one(path, **cells):
    (row,) = read_rows(_table(path / "rows.csv", ROW | cells))
    return row


def test_a_minimal_row_is_a_question(tmp_path):
    """16 chips, tp 2: 8 replicas of micro-batch 1 run 32 sequences in 4 micro-batches."""
    row = _one(tmp_path)
    assert (row.strategy.data_parallel, row.strategy.tensor_parallel, row.strategy.micro_batch_size) == (8, 2, 1)
    assert (row.recipe.batch_size, row.recipe.accumulation_steps) == (32, 4)
    assert (row.spec.num_layers, row.cluster.chip.name, row.cluster.num_chips) == (32, "H100 SXM", 16)
    assert row.step_s == 2.5
    assert row.tokens_per_s == 32 * 8192 / 2.5


def test_a_precision_means_what_the_stack_means_by_it(tmp_path):
    """Megatron's bf16 keeps 16-bit weights with an FP32 master copy, FSDP's keeps FP32 weights."""
    assert _one(tmp_path).recipe.precision == "bf16-master"
    assert _one(tmp_path, stack="fsdp2", fsdp_zero="FULL_SHARD").recipe.precision == "bf16"


def test_tokens_per_second_are_seconds(tmp_path):
    """32 sequences of 8192 tokens at 1024 tokens/s on each of 16 chips take 16 s."""
    assert _one(tmp_path, step_time_s="", tokens_per_s_per_gpu="1024").step_s == 32 * 8192 / (1024 * 16)


def test_seconds_and_tokens_per_second_that_disagree_are_a_mistake(tmp_path):
    """A row that tells both and contradicts itself is refused with both figures."""
    with pytest.raises(MeasuredError, match=r"rows\.csv:2: step_time_s: 2\.5 s, but 1024 tokens/s .* 16 s"):
        _one(tmp_path, tokens_per_s_per_gpu="1024")


def test_memory_is_bytes_and_out_of_memory_is_told(tmp_path):
    """1.5 GiB is 1.5 x 1024**3 bytes; OOM needs no seconds."""
    assert _one(tmp_path, memory_gib="1.5").peak_bytes == 3 * 2**29
    out = _one(tmp_path, memory_gib="OOM", step_time_s="")
    assert (out.is_out_of_memory, out.peak_bytes, out.step_s) == (True, None, None)


def test_a_shape_without_a_preset_is_built_like_the_nearest(tmp_path):
    """MPT-125M: a build with biases, tied embeddings and learned positions has its 125,311,488 parameters."""
    shape = {"model": "MPT-125M", "layers": "12", "hidden": "768", "heads": "12", "vocab": "50368", "seq": "2048"}
    row = _one(tmp_path, **shape, params="125311488")
    assert row.spec.mlp.kind == "plain"
    assert row.spec.max_sequence_length == 2048
    assert any("gpt2 with tied embeddings" in each for each in row.assumed)


def test_a_row_may_take_the_build_of_a_preset_with_another_depth(tmp_path):
    """A proxy of Llama-3.1-405B with 8 layers keeps its widths."""
    row = _one(tmp_path, model="proxy", like="llama-3.1-405b", layers="8")
    assert (row.spec.num_layers, row.spec.hidden_size, row.spec.num_key_value_heads) == (8, 16_384, 8)


def test_every_mistake_of_a_file_is_told_with_its_line(tmp_path):
    """Four rows, three wrong: all reasons come at once, each with its line."""
    path = _table(
        tmp_path / "rows.csv",
        ROW | {"chip": "h1000"},
        ROW,
        ROW | {"tp": "5", "precision": "fp7"},
        ROW | {"global_batch": "12", "stack": "megatrn", "pp": "x"},
    )
    with pytest.raises(MeasuredError) as caught:
        read_rows(path)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in lines] == ["2", "4", "4", "5", "5", "5"]
    for line, words in zip(
        lines,
        ("h1000", "tp 5 x pp 1 x cp 1 = 5 does not divide 16", "fp7", "megatrn", "'x'", "does not divide 12"),
        strict=True,
    ):
        assert words in line


def test_rows_that_are_none_stand_beside_those_that_are(tmp_path):
    """A table of others' measurements is read as far as it goes."""
    reading = read_table(_table(tmp_path / "rows.csv", ROW, ROW | {"micro_batch": "unstated"}))
    assert len(reading.rows) == 1
    assert [each.reasons for each in reading.refused] == [("micro_batch: is missing",)]


def test_a_wrong_header_names_the_close_column(tmp_path):
    """`micro_batches` is no column."""
    with pytest.raises(MeasuredError, match=r"rows\.csv:1: unknown column 'micro_batches'; did you mean 'micro_batch'"):
        read_rows(_table(tmp_path / "rows.csv", {"model": "gpt2", "micro_batches": "1"}))


@pytest.mark.parametrize(
    ("text", "words"), [("", "no rows"), ("model\n", "no rows"), ("model,gpu\ngpt2\n", "1 cells, the header has 2")]
)
def test_a_table_without_rows_or_with_ragged_ones_is_refused(tmp_path, text, words):
    """The message says what a table looks like."""
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MeasuredError, match=words):
        read_rows(path)


def test_a_missing_file_is_told(tmp_path):
    """As an error of the planner, not a traceback."""
    with pytest.raises(MeasuredError, match=r"none\.csv"):
        read_rows(tmp_path / "none.csv")


@pytest.mark.parametrize("text", ["abc", "-3", "inf", "nan"])
def test_seconds_that_are_none_are_one_mistake(tmp_path, text):
    """A cell that cannot be read is told, and not that nothing was measured besides."""
    with pytest.raises(MeasuredError) as caught:
        read_rows(_table(tmp_path / "rows.csv", ROW | {"step_time_s": text}))
    (line,) = str(caught.value).splitlines()
    assert "rows.csv:2: step_time_s: " in line
    assert text in line


def test_a_row_that_measured_nothing_says_what_it_may_have(tmp_path):
    """Without seconds, tokens per second and bytes a row is a layout and nothing more."""
    with pytest.raises(
        MeasuredError, match="nothing was measured: give step_time_s, tokens_per_s_per_gpu or memory_gib"
    ):
        read_rows(_table(tmp_path / "rows.csv", ROW | {"step_time_s": ""}))


def test_a_file_that_is_no_text_is_told(tmp_path):
    """A workbook given for its CSV: no traceback, and what to do."""
    (tmp_path / "rows.csv").write_bytes(b"PK\x03\x04\xff\xfe")
    with pytest.raises(MeasuredError, match="save the table as UTF-8 text"):
        read_rows(tmp_path / "rows.csv")


@pytest.mark.parametrize(("mark", "name"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
def test_a_table_of_other_separators_is_told_so(tmp_path, mark, name):
    """A header that is one column with other separators in it: they are named, no long column is unknown."""
    path = tmp_path / "rows.csv"
    path.write_text(mark.join(("model", "stack", "gpu")) + "\n" + mark.join(("gpt2", "fsdp2", "h100")) + "\n")
    with pytest.raises(MeasuredError, match=rf"rows\.csv:1: columns are separated by {name}; separate them by commas$"):
        read_rows(path)


def test_a_precision_that_cannot_be_told_lists_those_that_can(tmp_path):
    """Every precision of a recipe is in the refusal."""
    with pytest.raises(MeasuredError, match=r"cannot tell what 'foo' is; it is one of fp32, tf32, bf16, .*nvfp4$"):
        _one(tmp_path, precision="foo")
