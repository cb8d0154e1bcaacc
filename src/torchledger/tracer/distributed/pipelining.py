"""Pipeline stages whose neighbours are not there: shapes come from the user's own examples.

A schedule first lets its stages vote whether all know their shapes, and asks the neighbours for those it does not
(`_warmup_p2p` in torch/distributed/pipelining/schedules.py). Sends and receives of the step itself run as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torchledger.tracer.errors import TraceError


def patches() -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    """What stands in for the vote."""
    from torch.distributed.pipelining import schedules

    yield schedules._PipelineSchedule, "_warmup_p2p", _decided  # noqa: SLF001  # torch's base of all schedules


def _decided(_method: Callable[..., None]) -> Callable[..., None]:
    from torch.distributed.pipelining._utils import InferenceMode

    def warm_up(_schedule: Any, stages: list[Any], has_backward: bool, _p2p_done: bool) -> None:
        for stage in stages:
            if InferenceMode.needs_dynamic(stage._user_meta, has_backward):  # noqa: SLF001  # what the user told the stage
                raise TraceError(
                    f"pipeline stage {stage.stage_index} asks its neighbours for shapes, who are not there",
                    remedy="Give PipelineStage its input_args and output_args",
                )
            stage._inference_mode = InferenceMode.STATIC  # noqa: SLF001  # what the vote sets

    return warm_up
