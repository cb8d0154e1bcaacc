"""The books of the presets: formula, trace and run of one step are equal, in FLOPs and in bytes."""

import importlib.util

import pytest
from preset_books import TABLE, WAYS, Run, books, contractions, fewest_layers, presets, recipe, rows, runs, traced

from torchledger import spec as specs
from torchledger.formula import count, memory

#: One of each kind of layer, small enough for every day; the others are under `make proof`.
DAILY = ("stdlib-small", "gpt2", "opt-350m", "bloom-560m", "pythia-160m", "gemma-3-270m", "qwen3-0.6b", "palm-540b")
MEMORY_BYTES = 6 * 10**9


def _generator():
    spec = importlib.util.spec_from_file_location("generate_presets_books", TABLE.parent / "generate_presets_books.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _marked(names):
    return [pytest.param(name, marks=[] if name in DAILY else [pytest.mark.proof]) for name in names]


@pytest.mark.parametrize("name", _marked(presets()))
def test_formula_and_trace_of_a_whole_preset_are_equal(name):
    """FLOPs by account to the last one, kept bytes and the peak to the byte; no memory is taken."""
    whole, way = specs.load(name), WAYS[0][0]
    asked, run = recipe(way), Run(name, whole.num_layers, way)
    trace, formula, told = traced(run), count(whole, asked), memory(whole, asked)
    assert contractions(formula) == contractions(trace.ledger.folded())
    assert told.activation_bytes == trace.kept_bytes
    assert told.peak_bytes == trace.peak().peak_bytes


def _open(entry):
    """Sums of a run's books that are not the same by every way."""
    ways = {
        "flops": ("formula_flops", "traced_flops", "measured_flops"),
        "tensor bytes": ("formula_tensor_bytes", "traced_tensor_bytes", "measured_tensor_bytes"),
        "peak bytes": ("predicted_peak_bytes", "measured_peak_bytes"),
    }
    sums = {what: [int(entry[name]) for name in names] for what, names in ways.items()}
    return {what: each for what, each in sums.items() if len(set(each)) > 1}


@pytest.mark.parametrize("way", WAYS[0])
def test_the_books_of_the_smallest_preset_close(way):
    """FLOPs, tensor bytes and the allocator's peak of a real step are as told before, and stand so in the table."""
    entry = books(Run("stdlib-small", 6, way))
    assert _open(entry) == {}
    row = rows()["stdlib-small", way]
    machine = "predicted_peak_bytes", "measured_peak_bytes"  # with what kernels hold, which another processor may not
    assert {name: entry[name] for name in entry if name not in machine} == {
        name: row[name] for name in row if name not in machine
    }


@pytest.mark.proof
@pytest.mark.parametrize("run", [run for name in presets() for run in runs(name, MEMORY_BYTES)], ids=str)
def test_the_books_of_every_preset_that_fits_close(run):
    """The same of all that 6 GB hold, cut to a few layers where the whole does not fit."""
    assert _open(books(run)) == {}


def test_runs_are_chosen_by_what_fits():
    """All of GPT-2 takes 2.3 GB with AdamW; of Llama 7B the 262 M parameters of embedding and head, and two layers."""
    assert [str(run) for run in runs("gpt2", MEMORY_BYTES)] == ["gpt2-12-adamw-fp32", "gpt2-12-adamw-bf16"]
    assert [str(run) for run in runs("llama-7b", MEMORY_BYTES)] == ["llama-7b-2-sgd-bf16-pure"]
    assert runs("llama-7b", 10**9) == ()
    assert fewest_layers(specs.load("gemma-3-1b")) == 6  # five windows and one layer that sees everything
    assert fewest_layers(specs.load("deepseek-v3")) == 4  # three dense layers and one of experts


def test_the_table_is_what_the_page_shows():
    """docs/presets-books.md is written from docs/presets-books.csv, and every row of it closes."""
    generator = _generator()
    assert generator.page(rows()) == generator.TARGET.read_text(encoding="utf-8")
    for row in rows().values():
        assert row["formula_flops"] == row["traced_flops"] == row["measured_flops"]
        assert row["traced_tensor_bytes"] == row["measured_tensor_bytes"]
