"""Layers, or the whole model, through torch.compile: whether it pays here, and what of a run they are used for."""

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

__all__ = ["CompileChoice", "Compiled", "choose_compile", "compile_model"]

#: What runs compiled: nothing, each dense layer by itself, or all from the embedding to the loss as one.
Compiled = Literal["no", "layers", "model"]

PROBE_PAIRS = 30  # of one run as it is and one compiled, in turn: a slow second of the machine falls on both
PROBE_S = 3.0  # no more pairs after so long, but a few
FASTER = 1.02  # by less it is not worth other bits
_FEWEST = 5  # pairs
SHORT_S = 60.0  # of all layers in the whole run: a probe takes 10 to 20 s of compiling, and most gains are a tenth
LONGEST_COMPILE_S = 120.0  # of a whole model, whose graph grows with its layers


@dataclass(frozen=True, slots=True)
class CompileChoice:
    """What was chosen, and on what grounds.

    Attributes:
        what: what is compiled.
        reasons: in words, for the assumptions of every answer that rests on it.
    """

    what: Compiled
    reasons: tuple[str, ...] = ()


def choose_compile(
    asked: Literal["no", "layers", "model", "auto"],
    spec: ModelSpec,
    recipe: Recipe,
    device: torch.device,
    *,
    is_alone: bool,
) -> CompileChoice:
    """What of a run to compile.

    `auto` compiles where a probe of one layer finds that the run gains more than compiling takes; a run that is short
    is not held up for the question. Where layers pay it asks the same of the model as one graph, from the embedding to
    the loss, which gains more and takes longer to compile, by each layer that it has. On two Zen 4 cores the layers of
    a step of 4 layers of width 128 on 768 tokens gained 5 to 8 %; on one core with AMX they gained 13 % and the model
    as one graph 22 %. Layers with experts are left as they are: how many tokens an expert takes changes with every
    batch, and each number would be compiled anew.

    Args:
        asked: what the configuration says.
        spec: the model.
        recipe: how it is trained, precision and kernel decided.
        device: where it is trained.
        is_alone: whether it is one process.

    Raises:
        SetupError: `layers` or `model`, and it cannot be: several ranks, no dense layer, or no compiler here; or what
            cannot be one graph.
    """
    if asked == "no":
        return CompileChoice("no")
    num_dense = sum(not spec.layer(index).is_moe for index in range(spec.num_layers))
    why_not = _why_not(num_dense, is_alone=is_alone)
    if asked == "auto":
        if not why_not and device.type not in {"cpu", "cuda"}:
            why_not = f"nothing is known of it on {device.type}"
        return CompileChoice("no", (f"compile no: {why_not}",)) if why_not else _found(spec, recipe, device, num_dense)
    why_not = why_not or (_why_not_whole(spec, recipe) if asked == "model" else "") or _fault_of_compiler(device)
    if why_not:
        thing, cure = ("layers", "no") if asked == "layers" else ("the model as one graph", "layers, or to no")
        raise SetupError(f"compile: {thing} cannot be compiled here: {why_not}; set compile to {cure}")
    return CompileChoice(asked, _words(asked, "as asked", num_dense, spec.num_layers))


def _found(spec: ModelSpec, recipe: Recipe, device: torch.device, num_dense: int) -> CompileChoice:
    """What a probe of one layer finds."""
    trial, num_runs = Trial.of(spec, recipe, device), num_dense * recipe.accumulation_steps * recipe.num_steps
    whole_s = _plain_s(trial) * num_runs
    why_not = ""
    if whole_s < SHORT_S:
        why_not = f"the layers take {whole_s:.2g} s in the whole run, too few to repay compiling"
    why_not = why_not or _fault_of_compiler(device)
    if why_not:
        return CompileChoice("no", (f"compile no: {why_not}",))
    try:
        compile_s, plain_s, compiled_s = _compared(trial, "no", "layers")
    except (RuntimeError, ImportError, OSError) as error:  # a run that did not ask for it does not fail of it
        return CompileChoice("no", (f"compile no: {_first_line(error)}",))
    times = f"a layer takes {plain_s:.2g} s as it is and {1 - compiled_s / plain_s:.0%} less compiled"
    if compiled_s * FASTER >= plain_s or (plain_s - compiled_s) * num_runs <= compile_s:
        return CompileChoice("no", (f"compile no: {times}, and {compile_s:.0f} s to compile",))
    what, further = _or_whole(spec, recipe, device, compile_s)
    return CompileChoice(what, (*_words(what, times, num_dense, spec.num_layers), *further))


def _or_whole(
    spec: ModelSpec, recipe: Recipe, device: torch.device, compile_layer_s: float
) -> tuple[Compiled, tuple[str, ...]]:
    """Whether the model is one graph, where its layers pay; and why.

    The probe has one layer, and a head as large as the model's. What each further layer gains by being in the graph is
    not counted; what it takes to compile is, as long as by itself.
    """
    why_not = _why_not_whole(spec, recipe)
    if why_not:
        return "layers", (f"not the model as one graph: {why_not}",)
    trial = Trial.of(spec, recipe, device, vocab_size=spec.vocab_size)
    try:
        compile_s, layers_s, model_s = _compared(trial, "layers", "model")
    except (RuntimeError, ImportError, OSError) as error:
        return "layers", (f"not the model as one graph: {_first_line(error)}",)
    compile_s += (spec.num_layers - 1) * compile_layer_s
    gain_s = (layers_s - model_s) * recipe.accumulation_steps * recipe.num_steps
    times = f"one graph of a model of one layer takes {1 - model_s / layers_s:.0%} less than its layer compiled"
    if layers_s < model_s * FASTER or gain_s <= compile_s or compile_s > LONGEST_COMPILE_S:
        return "layers", (f"not the model as one graph: {times}, and all layers about {compile_s:.0f} s to compile",)
    return "model", (f"as one graph: {times}",)


def compile_model(model: Transformer, what: Compiled) -> None:
    """Let the dense layers of a model, or all of it, run compiled where gradients are wanted; no name changes.

    Without gradients (evaluation, questions, samples) everything runs as it is: sequences there are of any length, and
    each length would be compiled anew. Equal layers are compiled once.

    Args:
        model: the model, changed in place.
        what: what of it; nothing leaves it as it is.
    """
    if what == "model":
        model.forward = _with_gradients_only(model.forward)  # type: ignore[method-assign]
    elif what == "layers":
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


def _why_not_whole(spec: ModelSpec, recipe: Recipe) -> str:
    """What stands against one graph of all; empty where nothing does."""
    if any(spec.layer(index).is_moe for index in range(spec.num_layers)):
        return "it has layers with experts, whose shapes change with every batch"
    if spec.num_prediction_layers:
        return "its prediction layers have losses whose shares change with every batch"
    if recipe.recompute != "none":
        return "what it runs again in the backward pass a compiler would decide anew"
    return "its head and loss go piece by piece (loss_chunk)" if recipe.loss_chunk else ""


def _words(what: Compiled, why: str, num_dense: int, num_layers: int) -> tuple[str, ...]:
    which = "the layers are" if num_dense == num_layers else f"the {num_dense} layers without experts are"
    which = "the model is one graph," if what == "model" else which
    return (
        f"compile {what}: {which} compiled, {why}",
        "FLOPs, memory and seconds are predicted for layers that are not compiled: compiled ones keep and move less",
    )


def _fault_of_compiler(device: torch.device) -> str:
    """Why nothing can be compiled here; empty where something was."""
    try:
        torch.compile(lambda x: (x + 1).sin(), dynamic=False)(torch.zeros(8, device=device))
    except (RuntimeError, ImportError, OSError) as error:
        return _first_line(error)
    return ""


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _plain_s(trial: Trial) -> float:
    """Seconds of a run as it is, the fastest of three after the first."""
    return min([trial.run() for _ in range(4)][1:])


def _compared(trial: Trial, *kinds: Compiled) -> tuple[float, float, float]:
    """Seconds to compile what the second kind compiles, and of a run of each of two kinds, which took turns."""
    model, compile_s, ways = trial.model, 0.0, []
    layer = model.layers[0]
    plain = layer.forward, model.forward
    for kind in kinds:
        layer.forward, model.forward = plain  # type: ignore[method-assign]
        compile_model(model, kind)
        ways.append((layer.forward, model.forward))
        compile_s = trial.run()
    seconds: tuple[list[float], ...] = tuple([] for _ in kinds)
    end = time.perf_counter() + PROBE_S
    while len(seconds[0]) < _FEWEST or (len(seconds[0]) < PROBE_PAIRS and time.perf_counter() < end):
        for way, taken in zip(ways, seconds, strict=True):
            layer.forward, model.forward = way  # type: ignore[method-assign]
            taken.append(trial.run())
    layer.forward, model.forward = plain  # type: ignore[method-assign]
    # a quarter from below: beside other processes half of the runs may have waited for a core
    first, second = (sorted(taken)[len(taken) // 4] for taken in seconds)
    return compile_s, first, second
