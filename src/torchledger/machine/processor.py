"""A CPU that the catalog does not have, from its cores and clock and the row of a generic core."""

from __future__ import annotations

from dataclasses import replace

from torchledger.machine.catalog import Catalog
from torchledger.machine.chip import Chip
from torchledger.machine.errors import MachineError
from torchledger.machine.matching import get

_GENERIC_CORE = "generic-avx2-core"
_ROW_CLOCK_HZ = 1e9  # the row is one core at 1 GHz, as its name says


def generic_cpu(
    num_cores: int,
    clock_hz: float,
    *,
    name: str = "CPU",
    memory_bytes: int | None = None,
    memory_bandwidth: float | None = None,
    catalog: Catalog | None = None,
) -> Chip:
    """A CPU by arithmetic: the generic core's FLOP per cycle times cores times clock.

    A rough figure, and the catalog says so in its confidence: wider vector units do more, and a lower clock under
    load does less. A measured matmul is better.

    Args:
        num_cores: physical cores in use.
        clock_hz: cycles per second.
        name: what to call it (the model name that the operating system gives).
        memory_bytes: what the machine has; unknown if not given.
        memory_bandwidth: bytes per second; unknown if not given.
        catalog: another catalog than the package's.

    Raises:
        MachineError: no cores or no clock.

    >>> generic_cpu(2, 2.5e9).peak("fp32") == 2 * 2.5e9 * 32
    True
    """
    if num_cores < 1 or not clock_hz > 0:
        raise MachineError(f"a CPU has at least one core and a clock above zero, not {num_cores} at {clock_hz} Hz")
    core = get(_GENERIC_CORE, catalog=catalog)
    times = num_cores * clock_hz / _ROW_CLOCK_HZ
    return replace(
        core,
        key="generic-cpu",
        name=name,
        aliases=(),
        form_factor="socket",
        num_cores=num_cores,
        peaks=tuple(replace(peak, dense_flops_per_s=peak.dense_flops_per_s * times) for peak in core.peaks),
        memory_bytes_nominal=memory_bytes,
        memory_bytes_reported=memory_bytes,
        memory_bandwidth=memory_bandwidth,
        chips_per_island=1,
        notes=f"{num_cores} cores at {clock_hz / 1e9:g} GHz times a generic core ({core.notes})",
    )
