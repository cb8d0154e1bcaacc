"""Layers through torch.compile: whether it pays here, and what of a run they are used for."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchledger.spec import ModelSpec, Recipe
from torchledger.trainer.errors import SetupError
from torchledger.trainer.model import Transformer
from torchledger.trainer.moe import Moe
from torchledger.trainer.narrowing import narrow
from torchledger.trainer.precision import FASTER, autocast
from torchledger.trainer.step import build_model

__all__ = ["CompileChoice", "choose_compile", "compile_layers"]

PROBE_STEPS = 10  # of which the fastest counts
_SMALL_VOCABULARY = 256  # of the probe's model, whose head is not what is asked about
_ON_CPU = "on a CPU it buys nothing: a step was measured 5 % slower to 5 % faster for 7 to 18 s of compiling"


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

    `auto` compiles on CUDA alone, where a short probe of one layer finds that the run gains more than compiling takes.
    Layers with experts are left as they are: how many tokens an expert takes changes with every batch, and each number
    would be compiled anew.

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
    if not why_not and device.type != "cuda":
        why_not = _ON_CPU if device.type == "cpu" else f"nothing is known of it on {device.type}"
    why_not = why_not or _fault_of_compiler(device)
    if why_not:
        return CompileChoice(False, (f"compile no: {why_not}",))
    probe = _probe(spec, recipe, device)
    times = f"a layer takes {probe.plain_s:.2g} s as it is and {probe.compiled_s:.2g} s compiled"
    if not probe.pays(num_dense * recipe.accumulation_steps * recipe.num_steps):
        return CompileChoice(False, (f"compile no: {times}, and {probe.compile_s:.0f} s to compile",))
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


@dataclass(frozen=True, slots=True)
class _Probe:
    """Seconds of one layer, forward and backward, as it is and compiled; and what compiling took."""

    plain_s: float
    compiled_s: float
    compile_s: float

    def pays(self, num_layer_runs: int) -> bool:
        """Whether so many runs of a layer save more than compiling takes; a few per cent are not worth other bits."""
        is_faster = self.compiled_s * FASTER < self.plain_s
        return is_faster and (self.plain_s - self.compiled_s) * num_layer_runs > self.compile_s


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


def _probe(spec: ModelSpec, recipe: Recipe, device: torch.device) -> _Probe:
    """Time a model of one dense layer and a small vocabulary on the tokens of a micro-batch."""
    index = next(i for i in range(spec.num_layers) if not spec.layer(i).is_moe)
    windows = (spec.layer(index).window,)
    small = replace(
        spec,
        num_layers=1,
        num_prediction_layers=0,
        vocab_size=_SMALL_VOCABULARY,
        moe=None,
        attention=replace(spec.attention, window_pattern=windows),
    )
    with device:
        tokens = torch.zeros(recipe.micro_batch_size, recipe.sequence_length, dtype=torch.int64)
        batch = (tokens,) * (2 + recipe.document_mask)
        model = build_model(small, replace(recipe, trainable=(), load_balance=0.0))
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.01)
    narrow(model, recipe.precision)
    plain_s = _best_s(model, batch, recipe)
    compile_layers(model)
    begin = time.perf_counter()
    _run(model, batch, recipe)
    compile_s = time.perf_counter() - begin
    return _Probe(plain_s, _best_s(model, batch, recipe), compile_s)


def _best_s(model: Transformer, batch: tuple[Tensor, ...], recipe: Recipe) -> float:
    """The fastest of a few runs, the first one left out."""
    seconds = []
    for _ in range(1 + PROBE_STEPS):
        begin = time.perf_counter()
        _run(model, batch, recipe)
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:])


def _run(model: Transformer, batch: tuple[Tensor, ...], recipe: Recipe) -> None:
    """Forward and backward; reading the loss waits for what the device has to do before it, and so do gradients."""
    with autocast(batch[0].device, recipe.precision):
        loss = model(*batch)
    loss.backward()
    model.zero_grad(set_to_none=True)
    if batch[0].is_cuda:
        torch.cuda.synchronize(batch[0].device)
