"""Ledgers by arithmetic: a model's parameters, the lines of its training step, its memory, in numbers or in symbols.

parameters.py  every parameter by name, shape and number
training.py    which of them a recipe trains
precision.py   what a precision means: formats of weights, products, gradients, state
kernels.py     which kernels run: torch's on a CPU or CUDA, FlashAttention, Megatron's, a compiler's
value.py, layout.py   a tensor by its sizes, and when a reshape of it is a copy
tape.py        a forward pass walked with sizes alone: lines, kept storages, what is run again
sweep.py       what is alive beside what is kept
dense.py, narrow.py, joint.py, pointwise.py, heads.py, core.py, core_fused.py, attention.py, mlp.py, mixture.py,
               loss.py, loss_in_pieces.py, model.py
               the modules of the model, walked
optimizer.py   clipping, step and state
count.py       the ledger of one step
parts.py       the step in parts that add up, for those who spread it over ranks
memory.py      memory by part and the list of kept activations
lifetimes/     the trainer's step rehearsed tensor by tensor: its peak to the byte
moments.py, part_moments.py   the moments of a step that can be its peak, on other kernels
network.py     the lecture's linear networks in closed form
per_token.py   FLOPs per token, by our count and by the formulas in circulation
symbolic.py    the same with letters for sizes
"""

from torchledger.formula.count import count, default_recipe
from torchledger.formula.kernels import KERNELS, Kernels
from torchledger.formula.memory import MemoryPrediction, memory
from torchledger.formula.moments import Moment
from torchledger.formula.network import LinearNetwork, linear_network
from torchledger.formula.parameters import (
    Parameter,
    num_active_parameters,
    num_embedding_parameters,
    num_parameters,
    num_prediction_parameters,
    parameters,
)
from torchledger.formula.parts import Part, parts
from torchledger.formula.per_token import PerToken, flops_per_token, per_token
from torchledger.formula.symbolic import Polynomial, SymbolicError, polynomial
from torchledger.formula.value import Activation

__all__ = [
    "KERNELS",
    "Activation",
    "Kernels",
    "LinearNetwork",
    "MemoryPrediction",
    "Moment",
    "Parameter",
    "Part",
    "PerToken",
    "Polynomial",
    "SymbolicError",
    "count",
    "default_recipe",
    "flops_per_token",
    "linear_network",
    "memory",
    "num_active_parameters",
    "num_embedding_parameters",
    "num_parameters",
    "num_prediction_parameters",
    "parameters",
    "parts",
    "per_token",
    "polynomial",
]
