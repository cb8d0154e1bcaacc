"""FLOPs of matmuls and attention: formula == trace == torch's own counter, per phase, to the last one."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from torchledger.formula import count
from torchledger.ledger import HARDWARE_FLOPS
from torchledger.spec import Recipe
from torchledger.spec.presets import get, names
from torchledger.tracer import trace_step
from torchledger.trainer.model import build
from torchledger.trainer.precision import autocast
from torchledger.trainer.step import build_step, example_batch

DENSE = [name for name in names() if get(name).moe is None]
CONTRACTIONS = {"matmul", "attention"}
PHASES = ("forward", "backward", "recompute")


def _traced(spec, recipe):
    def step():
        run, batch = build_step(spec, recipe, initialized=False), example_batch(recipe)
        return lambda: run(batch, 0)

    return trace_step(step).ledger.folded()


def _contractions(ledger):
    """Full and executed FLOPs of each account."""
    accounts = ledger.where(kind=CONTRACTIONS).accounts()
    return {account: (work.flops_full, work.flops_executed) for account, work in accounts.items()}


def _torch_counted(spec, recipe):
    """(forward, everything after) by `FlopCounterMode` on the meta device, attention written out."""
    with torch.device("meta"):
        model = build(spec, attention="math", recompute=recipe.recompute, sequence_length=recipe.sequence_length)
        ((tokens, targets),) = example_batch(recipe)
        with FlopCounterMode(display=False) as forward, autocast(torch.device("cpu"), recipe.precision):
            loss = model(tokens, targets)
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


def _by_phase(ledger):
    return [ledger.under(HARDWARE_FLOPS).where(phase=phase, kind=CONTRACTIONS).flops for phase in PHASES]


def _shallow(spec):
    """As few layers as show every kind of them."""
    return replace(spec, num_layers=min(spec.num_layers, max(2, len(spec.attention.window_pattern))))


def _told_and_found(spec, recipe):
    """By formula; and by the trace, by torch's counter on attention written out, and by the phases of that."""
    formula, written_out = count(spec, recipe), replace(recipe, attention="math")
    forward, backward, again = _by_phase(count(spec, written_out))
    told = _contractions(formula), (forward, backward + again), formula.where(phase={"forward", "backward"}).flops
    return told, (_contractions(_traced(spec, recipe)), _torch_counted(spec, written_out), forward + backward)


@pytest.mark.parametrize("name", DENSE)
def test_every_dense_preset_at_its_widths(name):
    """Few layers, since equal ones fold; the whole depth is a proof, below."""
    told, found = _told_and_found(_shallow(get(name)), Recipe(batch_size=1, sequence_length=32))
    assert told == found


@pytest.mark.proof
@pytest.mark.parametrize("name", DENSE)
def test_every_dense_preset_at_its_whole_depth(name):
    told, found = _told_and_found(get(name), Recipe(batch_size=1, sequence_length=64, precision="bf16"))
    assert told == found


@pytest.mark.parametrize("name", ["gpt2", "llama-3.2-1b", "gemma-3-270m", "olmo-1b", "phi-1.5", "bloom-560m"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_presets_under_autocast_and_recompute(name, precision, recompute):
    told, found = _told_and_found(
        _shallow(get(name)), Recipe(batch_size=2, sequence_length=16, precision=precision, recompute=recompute)
    )
    assert told == found
