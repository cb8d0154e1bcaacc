"""A row of docs/zoo.csv: what the tracer says of one model at one size."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchledger.ledger import CONTRACTIONS, MODEL_FLOPS
from torchledger.tracer import Trace, trace
from zoo.model import Batch, Size, ZooModel

TABLE = Path(__file__).parents[3] / "docs" / "zoo.csv"
FIELDS = (
    "model", "family", "class", "size", "num_parameters", "forward_flops", "backward_flops", "attention",
    "peak_tensor_bytes", "complete",
)  # fmt: skip
_KERNELS = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": "flash",
    "aten._scaled_dot_product_attention_math.default": "math",
}


def traced(zoo_model: ZooModel, model: nn.Module, batch: Batch) -> Trace:
    """Two full training steps with AdamW; the ledger is of the second."""
    return trace(model, batch, loss=zoo_model.loss, optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3))


def row(zoo_model: ZooModel, size: Size, result: Trace) -> dict[str, Any]:
    """The row of a trace."""
    contractions = result.ledger.where(kind=CONTRACTIONS).under(MODEL_FLOPS)
    operations = {call.signature.op for call in result.calls}
    kernels = sorted({name for op, name in _KERNELS.items() if op in operations})
    return {
        "model": zoo_model.name,
        "family": zoo_model.family,
        "class": zoo_model.class_name,
        "size": "tiny" if size == "tiny" else zoo_model.size_name,
        "num_parameters": result.num_parameters,
        "forward_flops": contractions.where(phase="forward").flops,
        "backward_flops": contractions.where(phase="backward").flops,
        "attention": " ".join(kernels) or "none fused",
        "peak_tensor_bytes": result.peak().peak_bytes,
        "complete": "yes" if result.ledger.is_complete else "no",
    }


def rows() -> dict[tuple[str, str], dict[str, str]]:
    """Every row of the table by model and size."""
    if not TABLE.exists():
        return {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {(entry["model"], entry["size"]): entry for entry in csv.DictReader(file)}


def write(entries: dict[tuple[str, str], dict[str, Any]]) -> None:
    """The table anew."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(entries.values())
