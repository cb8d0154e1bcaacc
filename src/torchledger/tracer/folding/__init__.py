"""Equal layers traced once and counted n times: which are equal, what runs instead, what is written for the others.

Of n equal layers the first four and the last run. The two in the middle of the four are compared, operation by
operation and allocation by allocation; where they are alike, the others are written down as they are. Where anything is
not, the step is traced in full, and the trace says why.
"""

from torchledger.tracer.folding.folds import Folds, Unfoldable, folded

__all__ = ["Folds", "Unfoldable", "folded"]
