"""A step rehearsed without numbers: the trainer's operations in its order, each tensor as long as somebody holds it.

Python counts references as torch does, so that these functions, written as the trainer's modules are, let go of each
tensor where those do. What comes of it is the timeline of a trace, allocation by allocation (tests/agree/test_peaks.py
holds one against the other), in a hundredth of a second and without torch.

memory.py      bytes alive by part, and the most of them; a block that lives as long as it is held
tensors.py     sizes, layout and block; where elements of a result lie
autograd.py    nodes, what they keep, the order in which they run, what is added up in place
checkpoint.py  regions that keep their inputs only and run again
views.py, operations.py   torch's operations: what each makes, keeps, and makes in its gradient
narrow.py      linear maps in FP8
modules.py     a place in the model: parameters, linear maps, norms
cores.py, attending.py, feeding.py, experts.py, layers.py, depth.py, losses.py, model.py   the trainer's model
updates.py     clipping and the optimizer's step
step.py        a step
"""

from torchledger.formula.lifetimes.step import is_rehearsed, rehearsed

__all__ = ["is_rehearsed", "rehearsed"]
