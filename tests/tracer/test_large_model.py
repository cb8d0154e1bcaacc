"""A full training step of an 8B model, traced in a process of its own: its numbers, and the memory it takes."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import itertools, json, resource, sys, time
from torchledger import spec
from torchledger.tracer import trace_step
from torchledger.trainer.step import build_step, example_batch

model = spec.load(sys.argv[1])
recipe = spec.Recipe(sequence_length=8192, precision="bf16")

def build():
    step, batch, numbers = build_step(model, recipe, initialized=False), example_batch(recipe), itertools.count()
    return lambda: step(batch, next(numbers))

begun = time.process_time()
trace = trace_step(build)
print(json.dumps({
    "seconds": time.process_time() - begun,
    "assumptions": trace.assumptions,
    "num_parameters": trace.num_parameters,
    "flops": trace.ledger.flops,
    "parts": trace.peak().by_part(),
    "num_unknown": len(trace.ledger.unknown_lines),
    "resident_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
}))
"""


def traced(name):
    command = [sys.executable, "-c", SCRIPT, name]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


@pytest.mark.proof
def test_llama_3_8b_is_traced_in_less_than_a_gibibyte():
    """8,192 tokens, bf16 autocast, fused AdamW.

    FLOPs: 6 a parameter in a matrix and token (the embedding is a lookup), and attention 12·L·T²·D.
    """
    answer = traced("llama-3-8b")
    num_parameters, T, L, D, V = 8_030_261_248, 8192, 32, 4096, 128_256
    assert answer["num_parameters"] == num_parameters
    in_matrices = num_parameters - V * D - (2 * L + 1) * D  # without the embedding and the norms
    assert answer["flops"] == 6 * T * in_matrices + 12 * L * T**2 * D
    assert answer["parts"]["parameters"] == 4 * num_parameters
    assert answer["num_unknown"] == 0
    assert answer["resident_bytes"] < 2**30


@pytest.mark.proof
def test_llama_3_1_405b_is_traced_in_ten_seconds_and_a_gibibyte():
    """Processor time of the trace alone, without the start of the process; its layers are folded."""
    answer = traced("llama-3.1-405b")
    num_parameters, T, L, D, V = 405_853_388_800, 8192, 126, 16_384, 128_256
    assert answer["num_parameters"] == num_parameters
    in_matrices = num_parameters - V * D - (2 * L + 1) * D  # without the embedding and the norms
    assert answer["flops"] == 6 * T * in_matrices + 12 * L * T**2 * D
    assert answer["parts"]["parameters"] == 4 * num_parameters
    assert answer["num_unknown"] == 0
    assert answer["assumptions"] == []
    assert answer["seconds"] < 10
    assert answer["resident_bytes"] < 2**30
