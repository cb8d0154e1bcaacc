"""The learning rate of a step: a pure function of the step, so that a resumed run continues on the same curve."""

import math

from torchledger.spec import OptimizerSpec

__all__ = ["learning_rate"]


def learning_rate(spec: OptimizerSpec, step: int, num_steps: int) -> float:
    """Learning rate of update `step` (from 0) in a run of `num_steps`.

    It climbs linearly over the first `warmup_steps` updates, the last of which has the full rate. Then it falls to
    `final_fraction` of it at the last update, and stays there: `cosine` along half a cosine (Loshchilov and Hutter,
    arXiv:1608.03983, eq. 5, without restarts), `linear` along a straight line, `wsd` along a straight line over the
    last `decay_fraction` of all updates, at the top before (MiniCPM, arXiv:2404.06395, section 4). `constant` stays at
    the top. Where warm-up reaches into what `wsd` would decay, the line begins at its end.

    >>> spec = OptimizerSpec(learning_rate=1.0, warmup_steps=2, final_fraction=0.1)
    >>> [round(learning_rate(spec, step, 5), 3) for step in range(6)]
    [0.5, 1.0, 0.775, 0.325, 0.1, 0.1]
    >>> spec = OptimizerSpec(learning_rate=1.0, schedule="wsd", final_fraction=0.0, decay_fraction=0.4)
    >>> [learning_rate(spec, step, 10) for step in range(10)]
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if step < spec.warmup_steps:
        return spec.learning_rate * (step + 1) / spec.warmup_steps
    if spec.schedule == "constant":
        return spec.learning_rate
    top = max(spec.warmup_steps - 1, 0)  # the last update that has the full rate
    if spec.schedule == "wsd":
        # Decimals are not exact in binary: 0.3·10 = 3.0000000000000004 updates are 3 of them.
        top = max(top, num_steps - 1 - math.ceil(round(spec.decay_fraction * num_steps, 6)))
    share = max(0.0, min(1.0, (step - top) / max(1, num_steps - 1 - top)))
    height = (1 + math.cos(math.pi * share)) / 2 if spec.schedule == "cosine" else 1 - share
    return spec.learning_rate * (spec.final_fraction + (1 - spec.final_fraction) * height)
