"""Errors inside a traced step as the user can act on them: the problem, the module, the line, the remedy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from torchledger.tracer.errors import TraceError
from torchledger.tracer.recorder import Recorder
from torchledger.tracer.source import source_of

_FIXED_DEVICE = (
    "Make tensors where the module's parameters are (`x.device`) instead of on a fixed device; or trace with "
    "target='cuda'"
)
_NEEDS_VALUES = (
    "Take the decision from shapes instead of values, pass the value in as a Python number, or trace a step that "
    "leaves this out"
)
_NEEDS_COUNTS = (
    "How many entries a mask lets through is data: multiply by the mask (torch.where) instead of taking what it lets "
    "through. In a mixture of experts choose by topk or argmax, and name the number of experts `num_experts` on the "
    "module; loops over them are then traced"
)
_FAKE_KERNEL = "Register a fake kernel for it (torch.library.register_fake)"
_NO_DATA = "a traced step has no data, but this needs the values of a tensor"
_NEEDS_LENGTHS = (
    "Run the recurrent layer on the padded batch: that is the most it can take, and what it takes where all sequences "
    "are equally long"
)
_RAGGED = (
    "jagged nested tensors have sizes that are data, which a trace does not have",
    "Pad them (torch.nested.to_padded_tensor), or lay sequences end to end (varlen_attn) with document_lengths",
)
_QUANTIZED = (
    "a dynamically quantized module keeps its weights in an object of C++ that no trace can look into",
    "Trace the module that it was made of; integer products of tensors (torch._int_mm, torchao) are counted",
)
_aten = torch.ops.aten
#: Operations whose results' sizes are data.
_REMEDIES = dict.fromkeys((_aten.nonzero.default, _aten.bincount.default, _aten.masked_select.default), _NEEDS_COUNTS)
_REMEDIES[_aten._pack_padded_sequence.default] = _NEEDS_LENGTHS  # noqa: SLF001  # torch's own name
# What torch says -> problem and remedy; the first that is found counts. `{}` is torch's own message.
_SAYINGS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        (".numpy() is not supported", "tolist() is not supported", "data pointer", "DataPtr", "FakeTensor.__format__"),
        _NO_DATA,
        _NEEDS_VALUES,
    ),
    (
        ("argument: 'closure'",),
        "the optimizer wants a closure that runs the step anew, and this step passes none",
        "Use trace_step with a step that calls optimizer.step(closure)",
    ),
    (("shape_env must not be None",), *_RAGGED),
    (("'__eq__' is not implemented for __torch__",), *_QUANTIZED),
    (("scalar outputs",), "backward begins at a tensor that is no scalar", "Reduce it first (.mean() or .sum())"),
    (
        ("does not require grad and does not have a grad_fn",),
        "the loss depends on nothing that requires a gradient",
        "Give the model a parameter with requires_grad=True, and make the loss of its output without .detach()",
    ),
    (
        ("not linked with support for", "not compiled with", "NVIDIA driver", "No CUDA GPUs"),
        "this needs a device that is not there ({})",
        _FIXED_DEVICE,
    ),
    (
        ("two different devices", "on the same device"),
        "tensors of two devices meet ({})",
        "Make every tensor on the device of the model's parameters; the traced step has moved those to the CPU",
    ),
    (
        ("from the 'Meta' backend", "is not implemented for 'Meta'", "no fake impl", "no fake kernel"),
        "an operation tells no shapes without data ({})",
        _FAKE_KERNEL,
    ),
)


@contextlib.contextmanager
def explained(recorder: Recorder, doing: str = "tracing a step") -> Iterator[None]:
    """What a traced step cannot do as a `TraceError`; the user's own exceptions with the module named.

    Args:
        recorder: knows which module failed.
        doing: what the user's code was run for.
    """
    try:
        yield
    except TraceError as error:
        _place(error, recorder)
        raise
    except Exception as error:
        module, source = recorder.modules.failed_in(error), source_of(error.__traceback__)
        known = _known(error)
        if known is not None:
            problem, remedy = known
            raise TraceError(problem, module=module, source=source, remedy=remedy) from error
        where = f"in module `{module}`" if module else _outside(error)
        error.add_note(f"while {doing}, {where}" + (f", at {source}" if source else ""))
        raise


def _outside(error: Exception) -> str:
    """Where an exception that left no module comes from."""
    last = error.__traceback__
    while last is not None:
        if last.tb_frame.f_code.co_name == "_engine_run_backward":
            return "in the backward pass"
        last = last.tb_next
    return "outside every module"


def _place(error: TraceError, recorder: Recorder) -> None:
    """Add where it was to an error of our own that does not say."""
    if not error.module and not error.source:
        error.placed(module=recorder.modules.failed_in(error), source=source_of(error.__traceback__))


def _known(error: Exception) -> tuple[str, str] | None:
    """Problem and remedy, `None` where the error is the user's own."""
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        remedy = _REMEDIES.get(error.func, _NEEDS_VALUES)
        return f"a traced step has no data, but {error.func} needs the values of a tensor", remedy
    if isinstance(error, UnsupportedOperatorException):
        return f"{error.func} tells no shapes without data", _FAKE_KERNEL
    if isinstance(error, TypeError) and _is_of_a_call(error):
        return (
            f"the model does not take what it is given ({error})",
            "A tensor is passed as it is, a tuple or list by position, a mapping by name",
        )
    if isinstance(error, RecursionError):
        return "the step calls itself without end", "See the line that calls it again"
    text = str(error)
    for words, problem, remedy in _SAYINGS:
        if any(word in text for word in words):
            return problem.format(text.partition("\n")[0]), remedy
    return None


def _is_of_a_call(error: TypeError) -> bool:
    """Whether a module was called with arguments that its forward does not take: no line of the forward has run."""
    last: TracebackType | None = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    in_call = last is not None and last.tb_frame.f_code.co_filename == torch.nn.modules.module.__file__
    return in_call and "forward()" in str(error)
