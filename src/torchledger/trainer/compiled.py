"""Layers through torch.compile: whether it pays here, and what of a run they are used for."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from torchledger.spec import ModelSpec, Recipe
from torchledger.trainer.errors import SetupError
from torchledger.trainer.model import Transformer
from torchledger.trainer.moe import Moe
from torchledger.trainer.trial import Trial

__all__ = ["CompileChoice", "choose_compile", "compile_layers"]

PROBE_PAIRS = 30  # of one run as it is and one compiled, in turn: a slow second of the machine falls on both
PROBE_S = 3.0  # no more pairs after so long, but a few
FASTER = 1.02  # by less it is not worth other bits
_FEWEST = 5  # pairs
SHORT_S = 60.0  # of all layers in the whole run: a probe takes 10 to 20 s of compiling, and most gains are a tenth


@dataclass(frozen=True, slots=True)
class CompileChoice:
    """What was chosen, and on what grounds.

    Attributes:
        is_on: whether layers are compiled.
        reasons: in words, for the assumptions of every answer that rests on it.
    """

    is_on: bool
    reasons: tuple[str, ...] = ()


def choose_compile(
    asked: Literal["no", "yes", "auto"], spec: ModelSpec, recipe: Recipe, device: torch.device, *, is_alone: bool
) -> CompileChoice:
    """Whether to compile the layers of a run.

    `auto` compiles where a probe of one layer finds that the run gains more than compiling takes; a run that is short
    is not held up for the question. On two Zen 4 cores a step of 4 layers of width 128 on 768 tokens gained 5 to 8 %,
    one of 6 layers of width 384 on 2,048 tokens nothing. Layers with experts are left as they are: how many tokens an
    expert takes changes with every batch, and each number would be compiled anew.

    Args:
        asked: what the configuration says.
        spec: the model.
        recipe: how it is trained, precision and kernel decided.
        device: where it is trained.
        is_alone: whether it is one process.

    Raises:
        SetupError: `yes`, and it cannot be: several ranks, no dense layer, or no compiler here.
    """
    if asked == "no":
        return CompileChoice(is_on=False)
    num_dense = sum(not spec.layer(index).is_moe for index in range(spec.num_layers))
    why_not = _why_not(num_dense, is_alone=is_alone)
    if asked == "yes":
        why_not = why_not or _fault_of_compiler(device)
        if why_not:
            raise SetupError(f"compile: layers cannot be compiled here: {why_not}; set compile to no")
        return CompileChoice(True, _words("as asked", num_dense, spec.num_layers))
    if not why_not and device.type not in {"cpu", "cuda"}:
        why_not = f"nothing is known of it on {device.type}"
    if why_not:
        return CompileChoice(False, (f"compile no: {why_not}",))
    trial, num_runs = Trial.of(spec, recipe, device), num_dense * recipe.accumulation_steps * recipe.num_steps
    whole_s = _plain_s(trial) * num_runs
    if whole_s < SHORT_S:
        why_not = f"the layers take {whole_s:.2g} s in the whole run, too few to repay compiling"
    why_not = why_not or _fault_of_compiler(device)
    if why_not:
        return CompileChoice(False, (f"compile no: {why_not}",))
    compile_s, plain_s, compiled_s = _compared(trial)
    times = f"a layer takes {plain_s:.2g} s as it is and {1 - compiled_s / plain_s:.0%} less compiled"
    if compiled_s * FASTER >= plain_s or (plain_s - compiled_s) * num_runs <= compile_s:
        return CompileChoice(False, (f"compile no: {times}, and {compile_s:.0f} s to compile",))
    return CompileChoice(True, _words(times, num_dense, spec.num_layers))


def compile_layers(model: Transformer) -> None:
    """Let the dense layers of a model run compiled where gradients are wanted; names and parameters stay as they are.

    Without gradients (evaluation, questions, samples) they run as they are: sequences there are of any length, and each
    length would be compiled anew. Equal layers are compiled once.
    """
    for layer in model.layers:
        if not isinstance(layer.mlp, Moe):
            # in place of `forward`, not of the module: hooks and names are the layer's own
            layer.forward = _with_gradients_only(layer.forward)


def _with_gradients_only(plain: Callable[..., Any]) -> Callable[..., Any]:
    compiled = torch.compile(plain, dynamic=False)

    def forward(*inputs: Any) -> Any:
        return compiled(*inputs) if torch.is_grad_enabled() else plain(*inputs)

    return forward


def _why_not(num_dense: int, *, is_alone: bool) -> str:
    if not is_alone:
        return "it is built for one process alone"
    return "" if num_dense else "every layer has experts, whose shapes change with every batch"


def _words(why: str, num_dense: int, num_layers: int) -> tuple[str, ...]:
    which = "the layers are" if num_dense == num_layers else f"the {num_dense} layers without experts are"
    return (
        f"compile yes: {which} compiled, {why}",
        "FLOPs, memory and seconds are predicted for layers that are not compiled: compiled ones keep and move less",
    )


def _fault_of_compiler(device: torch.device) -> str:
    """Why nothing can be compiled here; empty where something was."""
    try:
        torch.compile(lambda x: (x + 1).sin(), dynamic=False)(torch.zeros(8, device=device))
    except (RuntimeError, ImportError, OSError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[0] if lines else type(error).__name__
    return ""


def _plain_s(trial: Trial) -> float:
    """Seconds of a run as it is, the fastest of three after the first."""
    return min([trial.run() for _ in range(4)][1:])


def _compared(trial: Trial) -> tuple[float, float, float]:
    """Seconds to compile the layer, and of a run as it is and compiled: medians of runs in turn."""
    layer = trial.model.layers[0]
    forwards: list[Callable[..., Any]] = [layer.forward]
    seconds: tuple[list[float], list[float]] = ([], [])
    compile_layers(trial.model)
    forwards.append(layer.forward)
    compile_s = trial.run()
    end = time.perf_counter() + PROBE_S
    while len(seconds[0]) < _FEWEST or (len(seconds[0]) < PROBE_PAIRS and time.perf_counter() < end):
        for forward, taken in zip(forwards, seconds, strict=True):
            layer.forward = forward
            taken.append(trial.run())
    return compile_s, statistics.median(seconds[0]), statistics.median(seconds[1])
