"""The ledger by looking: any module's real step, run on no memory, every operation and allocation written down.

`Recorder` is the eye: it works over fake tensors and over real ones, and leaves nothing behind.
"""

from torchledger.tracer.call import Call
from torchledger.tracer.errors import TraceError
from torchledger.tracer.recorder import Recorder
from torchledger.tracer.result import Trace
from torchledger.tracer.signature import Signature, TensorMeta, number_format, real_arguments

__all__ = [
    "Call",
    "Recorder",
    "Signature",
    "TensorMeta",
    "Trace",
    "TraceError",
    "number_format",
    "real_arguments",
]
