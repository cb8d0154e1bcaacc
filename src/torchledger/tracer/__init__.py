"""The ledger by looking: any module's real step, run on no memory, every operation and allocation written down.

`trace` takes a model and a batch, `trace_step` a function that builds the user's own step.
`Recorder` is the eye: it works over fake tensors and over real ones, and leaves nothing behind.
"""

from torchledger.tracer.call import Call
from torchledger.tracer.distributed import ranks
from torchledger.tracer.errors import NothingFits, TraceError
from torchledger.tracer.largest import Largest, max_batch, max_sequence
from torchledger.tracer.recorder import Recorder
from torchledger.tracer.result import Trace
from torchledger.tracer.signature import Signature, TensorMeta, number_format, real_arguments
from torchledger.tracer.step import trace, trace_step
from torchledger.tracer.whatif import Change, Outcome, what_if

__all__ = [
    "Call",
    "Change",
    "Largest",
    "NothingFits",
    "Outcome",
    "Recorder",
    "Signature",
    "TensorMeta",
    "Trace",
    "TraceError",
    "max_batch",
    "max_sequence",
    "number_format",
    "ranks",
    "real_arguments",
    "trace",
    "trace_step",
    "what_if",
]
