"""The learning rate of a step: a pure function of the step, so that a resumed run continues on the same curve."""

import math

from torchledger.spec import OptimizerSpec

__all__ = ["learning_rate"]


def learning_rate(spec: OptimizerSpec, step: int, num_steps: int) -> float:
    """Learning rate of update `step` (from 0) in a run of `num_steps`.

    It climbs linearly over the first `warmup_steps` updates, the last of which has the full rate. `cosine` then falls
    to `final_fraction` of it at the last update (Loshchilov and Hutter, arXiv:1608.03983, eq. 5, without restarts),
    and stays there; `constant` stays at the top.

    >>> spec = OptimizerSpec(learning_rate=1.0, warmup_steps=2, final_fraction=0.1)
    >>> [round(learning_rate(spec, step, 5), 3) for step in range(6)]
    [0.5, 1.0, 0.775, 0.325, 0.1, 0.1]
    """
    if step < spec.warmup_steps:
        return spec.learning_rate * (step + 1) / spec.warmup_steps
    if spec.schedule == "constant":
        return spec.learning_rate
    top = max(spec.warmup_steps - 1, 0)  # the update that first has the full rate
    share = min(1.0, (step - top) / max(1, num_steps - 1 - top))
    cosine = (1 + math.cos(math.pi * share)) / 2
    return spec.learning_rate * (spec.final_fraction + (1 - spec.final_fraction) * cosine)
