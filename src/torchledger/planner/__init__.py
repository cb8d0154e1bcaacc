"""Ledger times machine gives a plan: the napkin, the state of training, the seconds of a step. No torch.

relation.py  quantities tied by products, solved in any direction
napkin.py    days = 6·N·D / (chips · peak · MFU), one of them open
state.py     bytes per parameter, and the largest model that fits
rates.py     how fast a machine is, as curves over size
time.py      seconds of a step, line by line; MFU and HFU
"""

from torchledger.planner.assumed import AssumedMfu, assumed_mfu
from torchledger.planner.errors import Contradiction, PlanError, Underdetermined
from torchledger.planner.holding import Holding
from torchledger.planner.napkin import QUANTITIES, Napkin, solve
from torchledger.planner.rates import Rates
from torchledger.planner.state import OPTIMIZERS, PRECISIONS, StateBytes, state_bytes
from torchledger.planner.time import LineTime, StepTime, hfu, mfu, step_time

__all__ = [
    "OPTIMIZERS",
    "PRECISIONS",
    "QUANTITIES",
    "AssumedMfu",
    "Contradiction",
    "Holding",
    "LineTime",
    "Napkin",
    "PlanError",
    "Rates",
    "StateBytes",
    "StepTime",
    "Underdetermined",
    "assumed_mfu",
    "hfu",
    "mfu",
    "solve",
    "state_bytes",
    "step_time",
]
