"""`Cells`: one row of a table of measured runs, read cell by cell, with every mistake noted and none raised.

Published tables spell formats, sharding and recompute in their own words; here they become the words of a `Recipe` and
a `Strategy`. A cell that is empty or says that the source does not tell ("unstated", "see ...") is unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from torchledger.config import did_you_mean
from torchledger.spec.recipe import Precision, Recompute
from torchledger.units import UnitError, parse_count

#: Every column that is read, with what it holds; a table needs few of them (`planner.measured`).
COLUMNS: Mapping[str, str] = {
    "model": "a preset's name, a model file (beside the table), or any name if the shape is given",
    "like": "the preset or model file whose build (norms, biases, positions, kind of MLP) the shape is given to",
    "params": "parameters, from which the build is inferred where nothing names it",
    "layers": "depth",
    "hidden": "width of the residual stream",
    "heads": "query heads",
    "kv_heads": "key-value heads; empty: as many as heads",
    "head_size": "width of a head; empty: hidden / heads",
    "ffn": "inner width of the MLP; empty: 4 times hidden",
    "vocab": "rows of the embedding as stored",
    "moe_experts": "routed experts",
    "moe_topk": "experts that a token visits",
    "moe_ffn": "inner width of an expert",
    "dropout": "probability, on attention weights and on what attention and MLP add",
    "seq": "tokens in a sequence",
    "gpu": "the chip, as the catalog or its driver calls it",
    "n_gpus": "how many",
    "island": "chips that the scale-up link joins, where it differs from the chip's row",
    "cluster": "a known cluster (`machine.list_clusters()`), whose islands and network count",
    "network_gbit_s": "network between islands, Gbit/s of one direction for one chip",
    "stack": "training stack (`megatron`, `fsdp2` ...), or one of a file beside the table (`mine.toml:name`)",
    "precision": "a recipe's precision, or a table's word for it (`amp_bf16`, `FP8`, `MXFP8` ...)",
    "fsdp_zero": "what data parallel ranks shard: `none`, `ZeRO-1`, `ZeRO-3`, `FULL_SHARD`, `SHARD_GRAD_OP` ...",
    "shard_group": "ranks that share one copy of it; empty: all",
    "dp": "data parallel ranks; empty: what the others leave",
    "tp": "tensor parallel ranks",
    "sp": "sequence parallel: on or off",
    "pp": "pipeline stages",
    "vp": "chunks of layers of one rank (interleaved)",
    "schedule": "order of the micro-batches",
    "stage_layers": "layers of each chunk, `6 7 7 6`; empty: evenly",
    "cp": "context parallel ranks",
    "context_kind": "`ring`, `all-gather` or `ulysses`",
    "ep": "expert parallel ranks",
    "etp": "ranks that split each expert's matrices; empty: as tp",
    "micro_batch": "sequences that a replica runs at once",
    "global_batch": "sequences in a step",
    "recompute": "none, selective or full",
    "recompute_layers": "with full: layers of a chunk that are run again; empty: all",
    "attention": "`math` or `fused`",
    "optimizer": "adamw, sgd, lion ...",
    "offload_activations": "share of the kept activations that waits in host memory",
    "overlap_data": "gradient reduction and weight gathering beside the compute: on or off",
    "overlap_tensor": "tensor parallel collectives beside their matmuls: on or off",
    "task": "pre-training or fine-tuning",
    "lora_rank": "rank of the adapters that alone are trained",
    "lora_targets": "linear layers beside which they stand, by name: query key value output; empty: all",
    "step_time_s": "seconds of a step",
    "tokens_per_s_per_gpu": "or tokens per second of one chip",
    "memory_gib": "peak of the fullest chip, GiB (1024**3 bytes); `OOM` if it ran out",
    "quality": "A complete, B incomplete or derived, C recalled",
    "source_id": "whose measurement it is",
    "source_link": "where it is printed",
    "notes": "anything",
}

#: Other names of columns.
_OTHER_NAMES = {"chip": "gpu", "chips": "n_gpus", "source": "source_id"}

#: Columns of the collected table that nothing here needs.
_PASSED_OVER = {"tflops_per_gpu", "mfu", "hfu", "flops_convention", "provenance"}

#: What a table's word for a precision has in it, the first that fits, and the recipe's.
_PRECISIONS = (
    ("nvfp4", "nvfp4"),
    ("mxfp8", "mxfp8"),
    ("fp8-mx", "mxfp8"),
    ("fp8", "fp8"),
    ("float8", "fp8"),
    ("fp16", "fp16"),
    ("bf16", "bf16"),
    ("tf32", "tf32"),
    ("fp32", "fp32"),
)

_UNTOLD = re.compile(r"^(|-|\?|unstated.*|unknown|see .*|n/?a)$", re.IGNORECASE)
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?([eE][+-]?[0-9]+)?$")
_ON = {"on": True, "yes": True, "true": True, "1": True, "off": False, "no": False, "false": False, "0": False}


def column_of(name: str) -> str | None:
    """The column that a header names; nothing if it is passed over.

    Raises:
        KeyError: there is no such column; the message has the close one.

    >>> column_of("chips"), column_of("mfu")
    ('n_gpus', None)
    """
    word = name.strip().lower()
    word = _OTHER_NAMES.get(word, word)
    if word in COLUMNS:
        return word
    if word in _PASSED_OVER:
        return None
    raise KeyError(f"unknown column {name!r}; {did_you_mean(word, COLUMNS)}")


@dataclass(slots=True)
class Cells:
    """One row: its cells by column, and the mistakes found so far as (column, message)."""

    texts: Mapping[str, str]
    mistakes: list[tuple[str, str]] = field(default_factory=list)

    def has(self, column: str) -> bool:
        """Whether the row tells it."""
        return bool(self.text(column))

    def text(self, column: str) -> str:
        """The cell as written, without space around it; empty where the source does not tell."""
        text = self.texts.get(column, "").strip()
        return "" if _UNTOLD.match(text) else text

    def fail(self, column: str, message: str) -> None:
        """Note a mistake."""
        self.mistakes.append((column, message))

    def whole(self, column: str, default: int | None = None, *, least: int = 1) -> int | None:
        """A whole number; `default` where the cell is empty or wrong (which is noted). `128K` and `4e3` work."""
        text = self.text(column)
        if not text:
            return default
        try:
            number = parse_count(text)
        except UnitError as error:
            self.fail(column, str(error))
            return default
        if number < least:
            self.fail(column, f"must be at least {least}, is {text}")
            return default
        return number

    def number(self, column: str) -> float | None:
        """A positive number, commas grouping three digits; nothing where the cell is empty or wrong (noted)."""
        text = self.text(column)
        if not text:
            return None
        if "," in text and not _GROUPED.match(text):
            self.fail(column, f"{text!r} has a comma that groups no three digits; write a point for decimals: 1.2")
            return None
        try:
            value = float(text.replace(",", "").replace("_", ""))
        except ValueError:
            self.fail(column, f"expected a number, got {text!r}")
            return None
        if not 0 < value < math.inf:
            self.fail(column, f"must be more than 0 and finite, is {text}")
            return None
        return value

    def switch(self, column: str, *, default: bool) -> bool:
        """On or off."""
        text = self.text(column).lower()
        if text and text not in _ON:
            self.fail(column, f"expected on or off, got {text!r}")
        return _ON.get(text, default)

    def choice(self, column: str, choices: tuple[str, ...], default: str) -> str:
        """One of several words."""
        text = self.text(column).lower()
        if text and text not in choices:
            self.fail(column, f"expected one of {', '.join(choices)}, got {text!r}")
            return default
        return text or default

    def numbers(self, column: str) -> tuple[int, ...]:
        """Whole numbers with spaces between them."""
        words = self.text(column).split()
        if not all(word.isdigit() for word in words):
            self.fail(column, f"expected whole numbers such as `6 7 7 6`, got {self.text(column)!r}")
            return ()
        return tuple(int(word) for word in words)


def precision_of(text: str) -> str | None:
    """A table's word for a precision as that of a `Recipe`; nothing if it cannot be told.

    What `bf16` and `fp16` mean in the run's stack (`Stack.precision`) is another matter.

    >>> [precision_of(text) for text in ("FP8-MX / block-scaled", "fp16 mixed", "amp_bf16", "float8 tensorwise", "?")]
    ['mxfp8', 'fp16', 'bf16', 'fp8', None]
    >>> precision_of("bf16 (fp32 grad accumulation)"), precision_of("bf16-pure")
    ('bf16', 'bf16-pure')
    """
    word = text.lower()
    if word in get_args(Precision):
        return word
    return next((precision for sign, precision in _PRECISIONS if sign in word), None)


def sharding_of(text: str) -> tuple[int, int, bool] | None:
    """What data parallel ranks shard, as ZeRO level, shard group (0: all) and whether weights are given back.

    >>> sharding_of("DDP + distributed optimizer (ZeRO-1)"), sharding_of("FSDP (shard group 64)")
    ((1, 0, True), (3, 64, True))
    >>> sharding_of("SHARD_GRAD_OP"), sharding_of("none (DDP)"), sharding_of("whatever")
    ((3, 0, False), (0, 0, True), None)
    """
    word = text.lower()
    group = re.search(r"(?:shard group |\()(\d+)(?:-way)?\)", word)
    size = int(group[1]) if group else 0
    zero = re.search(r"zero-?([0123])", word)
    if "shard_grad_op" in word or "no re-shard" in word:
        return 3, size, False
    if "full_shard" in word or "fsdp" in word:
        return 3, size, True
    if zero:
        return int(zero[1]), size, True
    if "distributed optimizer" in word:
        return 1, size, True
    return (0, 0, True) if word.startswith(("none", "ddp", "no ")) or word == "0" else None


def recompute_of(text: str) -> str | None:
    """A table's word for recompute as that of a `Recipe`; nothing if it cannot be told.

    >>> recompute_of("full (per layer)"), recompute_of("selective (config default)"), recompute_of("some")
    ('full', 'selective', None)
    """
    return next((word for word in get_args(Recompute) if text.lower().startswith(word)), None)
