"""`Chip`: one accelerator or processor, as a row of the catalog says it is."""

from __future__ import annotations

from dataclasses import dataclass

from torchledger.machine.errors import NoPeak, UnknownFact
from torchledger.machine.link import Link

# The number formats a row may have a peak for, in the order people read them.
NUMBER_FORMATS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")

# Other words for them: numpy's and torch's names, and the scaled formats that run at their element's rate.
_OTHER_NAMES = {
    "float64": "fp64",
    "double": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "tensorfloat32": "tf32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float8": "fp8",
    "fp8e4m3": "fp8",
    "fp8e5m2": "fp8",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "float8e4m3fn": "fp8",
    "float8e5m2": "fp8",
    "mxfp8": "fp8",
    "float4": "fp4",
    "fp4e2m1": "fp4",
    "e2m1": "fp4",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
}


def rate_format(number_format: str) -> str:
    """The catalog's word for a number format; an unknown one comes back in lower case.

    >>> rate_format("torch.bfloat16"), rate_format("FP8 E4M3"), rate_format("nvfp4")
    ('bf16', 'fp8', 'fp4')
    """
    word = number_format.lower().removeprefix("torch.").replace(" ", "").replace("_", "").replace("-", "")
    return _OTHER_NAMES.get(word, word)


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest rate of one number format.

    Attributes:
        number_format: one of `NUMBER_FORMATS`.
        dense_flops_per_s: FLOP/s of dense matmuls (`int8`: operations per second).
        sparse_flops_per_s: the vendor's figure with structured sparsity; None: none known. Never a denominator.
        measured_flops_per_s: the largest matmul rate that anybody measured; None: unknown.
    """

    number_format: str
    dense_flops_per_s: float
    sparse_flops_per_s: float | None = None
    measured_flops_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sparsity:
    """Where a sparse figure comes from: the pattern ("2:4") and why it stands beside the dense one."""

    pattern: str
    reason: str


@dataclass(frozen=True, slots=True)
class Quoted:
    """Another figure in print for a fact of the row: `what` names the fact as the row does, `by` who says it."""

    what: str
    value: float
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One accelerator or processor. None is unknown, never zero and never a default.

    Attributes:
        key: the row's own name, unique in the catalog ("h100-sxm").
        name: for people ("H100 SXM").
        family: chips that people call by one name ("h100").
        kind: "gpu", "tpu", "accelerator" or "cpu".
        peaks: one `Peak` per number format, in the order of `NUMBER_FORMATS`.
        lacks: number formats that the chip cannot run.
        memory_bytes_nominal: the bytes it is sold as (80 GB is 80e9): the napkin's number.
        memory_bytes_reported: the bytes its driver reports: the number for layouts.
        memory_bandwidth: bytes per second.
        scale_up: the link inside an island (an NVLink domain, a pod).
        chips_per_island: how many chips that link joins.
        network: the typical network per chip between islands; a fact of the deployment more than of the chip.
        devices_per_chip: what a framework shows as separate devices (2 on MI250X).
        slice_name_counts_per_chip: 2 where a slice name (v4-4096) counts cores, 1 where it counts chips.
        tdp_w: watts.
        confidence: "high", "medium" or "low".
        date: the day the row was collected.
        file: the catalog file that has the row.
    """

    key: str
    name: str
    vendor: str
    architecture: str
    kind: str
    form_factor: str
    peaks: tuple[Peak, ...]
    confidence: str
    date: str
    source: str
    notes: str
    file: str
    family: str = ""
    aliases: tuple[str, ...] = ()
    year: int | None = None
    num_cores: int | None = None
    lacks: tuple[str, ...] = ()
    memory_kind: str | None = None
    memory_is_unified: bool = False
    memory_bytes_nominal: int | None = None
    memory_bytes_reported: int | None = None
    memory_bandwidth: float | None = None
    scale_up: Link | None = None
    chips_per_island: int | None = None
    network: Link | None = None
    devices_per_chip: int = 1
    slice_name_counts_per_chip: int | None = None
    tdp_w: float | None = None
    sparsity: Sparsity | None = None
    measured_source: str | None = None
    quoted: tuple[Quoted, ...] = ()

    def peak_row(self, number_format: str) -> Peak:
        """Everything known about the rate of one number format.

        Raises:
            NoPeak: the chip cannot run it, or the row does not say; lists the formats that it has.
        """
        wanted = rate_format(number_format)
        for peak in self.peaks:
            if peak.number_format == wanted:
                return peak
        has = [peak.number_format for peak in self.peaks]
        raise NoPeak(self.name, self.file, wanted, has, lacks=wanted in self.lacks)

    def peak(self, number_format: str) -> float:
        """The dense peak in FLOP/s (`int8`: operations per second): the denominator of MFU.

        Args:
            number_format: the catalog's word or another for the same ("bf16", "bfloat16", "torch.bfloat16").

        Raises:
            NoPeak: the chip cannot run it, or the row does not say; lists the formats that it has.
        """
        return self.peak_row(number_format).dense_flops_per_s

    def known_memory_bytes(self) -> int:
        """The nominal bytes.

        Raises:
            UnknownFact: the row has none.
        """
        if self.memory_bytes_nominal is None:
            raise UnknownFact(self.name, self.file, "memory.bytes_nominal")
        return self.memory_bytes_nominal

    def known_memory_bandwidth(self) -> float:
        """Bytes per second between the chip and its memory.

        Raises:
            UnknownFact: the row has none.
        """
        if self.memory_bandwidth is None:
            raise UnknownFact(self.name, self.file, "memory.bytes_per_s")
        return self.memory_bandwidth

    def known_scale_up(self) -> Link:
        """The link inside an island.

        Raises:
            UnknownFact: the row has none.
        """
        if self.scale_up is None:
            raise UnknownFact(self.name, self.file, "link")
        return self.scale_up

    def known_network(self) -> Link:
        """The typical network between islands.

        Raises:
            UnknownFact: the row has none.
        """
        if self.network is None:
            raise UnknownFact(self.name, self.file, "network.bytes_per_s_per_direction")
        return self.network
