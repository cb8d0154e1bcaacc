"""A full training step of an 8B model, traced in a process of its own: its numbers, and the memory it takes."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import itertools, json, resource
from torchledger import spec
from torchledger.tracer import trace_step
from torchledger.trainer.step import build_step, example_batch

model = spec.load("llama-3-8b")
recipe = spec.Recipe(sequence_length=8192, precision="bf16")

def build():
    step, batch, numbers = build_step(model, recipe, initialized=False), example_batch(recipe), itertools.count()
    return lambda: step(batch, next(numbers))

trace = trace_step(build)
print(json.dumps({
    "num_parameters": trace.num_parameters,
    "flops": trace.ledger.flops,
    "parts": trace.peak().by_part(),
    "num_unknown": len(trace.ledger.unknown_lines),
    "resident_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
}))
"""


@pytest.mark.proof
def test_llama_3_8b_is_traced_in_less_than_a_gibibyte():
    """8,192 tokens, bf16 autocast, fused AdamW.

    FLOPs: 6 a parameter in a matrix and token (the embedding is a lookup), and attention 12·L·T²·D.
    """
    answer = json.loads(subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True).stdout)
    num_parameters, T, L, D, V = 8_030_261_248, 8192, 32, 4096, 128_256
    assert answer["num_parameters"] == num_parameters
    in_matrices = num_parameters - V * D - (2 * L + 1) * D  # without the embedding and the norms
    assert answer["flops"] == 6 * T * in_matrices + 12 * L * T**2 * D
    assert answer["parts"]["parameters"] == 4 * num_parameters
    assert answer["num_unknown"] == 0
    assert answer["resident_bytes"] < 2**30
