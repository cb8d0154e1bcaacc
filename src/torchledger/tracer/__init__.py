"""The ledger by looking: any module's real step, run on no memory, every operation and allocation written down.

`trace` takes a model and a batch, `trace_step` a function that builds the user's own step.
`Recorder` is the eye: it works over fake tensors and over real ones, and leaves nothing behind.
"""

from torchledger.tracer.call import Call
from torchledger.tracer.errors import TraceError
from torchledger.tracer.recorder import Recorder
from torchledger.tracer.result import Trace
from torchledger.tracer.signature import Signature, TensorMeta, number_format, real_arguments
from torchledger.tracer.step import trace, trace_step

__all__ = [
    "Call",
    "Recorder",
    "Signature",
    "TensorMeta",
    "Trace",
    "TraceError",
    "number_format",
    "real_arguments",
    "trace",
    "trace_step",
]
