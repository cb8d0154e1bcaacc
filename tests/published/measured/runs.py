"""Predictions of published memory measurements, from the configuration alone: row of `rows.csv` -> bytes."""

import dataclasses
import importlib.util
import sys
import warnings
from pathlib import Path

from torchledger.memory import AllocatorSettings, reserve
from torchledger.tracer import trace_step
from torchledger.tracer.distributed import ranks
from torchledger.tracer.targets import target

HERE = Path(__file__).parent


def load(name, folder=HERE):
    """A file of a folder that is no package, as a module."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


titan_llama, titan_run, litgpt = load("titan_llama"), load("titan_run"), load("litgpt_finetune")
cs336 = load("cs336_run", HERE.parent)
EXPANDABLE = AllocatorSettings(expandable_segments=True)  # torchtitan's run_train.sh, from 2024-12 on
PLAIN = AllocatorSettings()
H100, A100, T4 = target("cuda", "h100", "flash"), target("cuda", "a100", "flash"), target("cuda", "t4")

#: Llama 3 8B before March 2025, with RMSNorm written out, and after.
EARLY = dataclasses.replace(titan_llama.LLAMA_3_8B, has_own_norm=True)
LATE = titan_llama.LLAMA_3_8B


@dataclasses.dataclass(frozen=True)
class Titan:
    """A run of torchtitan: two steps of one rank, the second the steady state that its log repeats."""

    configuration: object
    settings: AllocatorSettings = EXPANDABLE
    target: object = H100

    def predict(self, metric):
        """Bytes of the metric over both steps."""
        c = self.configuration
        with warnings.catch_warnings(), ranks(c.num_shards * c.num_tensor_parallel):
            warnings.simplefilter("ignore")  # FSDP2 on views, which is how torchtitan uses it
            trace = trace_step(lambda: titan_run.build(c), target=self.target, fold=False)
        return of(metric, trace.reserve(self.settings).peak)


@dataclasses.dataclass(frozen=True)
class Litgpt:
    """The first iteration of a LoRA run of litgpt, which holds the longest sample."""

    shape: object
    batch_size: int
    length: int

    def predict(self, metric):
        """Bytes of the metric."""
        make = lambda: litgpt.build(self.shape, self.batch_size, self.length)  # noqa: E731 - short, used once
        trace = trace_step(make, steps=1, target=A100, fold=False)
        return of(metric, trace.reserve().peak)


@dataclasses.dataclass(frozen=True)
class Course:
    """A run of the course's medium model: five steps warm up, the sixth was recorded."""

    kind: str
    length: int

    def predict(self, metric):
        """Bytes of the metric in the last step."""
        is_inference = self.kind == "inference"
        make = (
            (lambda: cs336.Inference(self.length))
            if is_inference
            else (lambda: cs336.Training(self.length, autocast=self.kind == "bf16"))
        )
        timeline = trace_step(make, steps=6, target="cuda", fold=False).timeline
        seen = reserve(timeline, since=timeline.marks["step 6"] + (0 if is_inference else 2))
        return seen.end.allocated_bytes if metric == "allocated_end_of_step" else of(metric, seen.peak)


def of(metric, amounts):
    """The amount that a metric names."""
    return {
        "peak_allocated": amounts.allocated_bytes,
        "peak_active": amounts.active_bytes,
        "peak_reserved": amounts.reserved_bytes,
        "reserved": amounts.reserved_bytes,
    }[metric]


def titan(shape, batch_size, length, num_shards, num_tensor_parallel=1, **rest):
    """A configuration of torchtitan."""
    return titan_run.Configuration(shape, batch_size, length, num_shards, num_tensor_parallel, **rest)


def march_2024(checkpointing, batch_size=8):
    """Llama 2 7B in March 2024: foreach AdamW, logits kept, no expandable segments."""
    configuration = titan(
        titan_llama.LLAMA_2_7B,
        batch_size,
        2048,
        8,
        checkpointing=checkpointing,
        optimizer="foreach",
        keeps_logits=True,
    )
    return Titan(configuration, PLAIN)


ENDS = {"has_groups_of_ends": True}
RUNS = {
    "M001": Course("fp32", 128),
    "M006": Course("fp32", 256),
    "M007": Course("bf16", 512),
    "M008": Course("bf16", 512),
    "M010": Course("bf16", 1024),
    "M012": Course("bf16", 1024),
    "M013": Course("inference", 128),
    "M014": Course("inference", 256),
    "M026": Titan(titan(EARLY, 2, 8192, 8)),
    "M027": Titan(titan(EARLY, 2, 8192, 8)),
    "M028": Titan(titan(EARLY, 2, 8192, 8)),
    "M033": Titan(titan(EARLY, 2, 8192, 128)),
    "M034": Titan(titan(EARLY, 2, 8192, 128)),
    "M035": Titan(titan(EARLY, 2, 8192, 128)),
    "M046": Titan(titan(LATE, 1, 8192, 8, **ENDS)),
    "M047": Titan(titan(LATE, 1, 8192, 8)),
    "M048": Titan(titan(EARLY, 1, 8192, 8)),
    "M049": Titan(titan(EARLY, 1, 8192, 8, reshard_last=True)),
    "M051": Titan(titan(EARLY, 1, 8192, 8)),
    "M056": Titan(titan(EARLY, 1, 8192, 8)),
    "M059": Titan(titan(LATE, 1, 8192, 8)),
    "M062": Titan(titan(LATE, 1, 8192, 64, **ENDS)),
    "M063": Titan(titan(LATE, 1, 8192, 64, **ENDS)),
    "M065": Titan(titan(LATE, 1, 8192, 4, 2, **ENDS)),
    "M069": march_2024("full"),
    "M070": march_2024("selective"),
    "M071": march_2024("selective", 16),
    "M072": march_2024("none"),
    "M074": march_2024("full"),
    "M075": march_2024("selective"),
    "M076": march_2024("selective"),
    "M084": Titan(titan(titan_llama.QWEN_3_32B, 32, 4096, 8, 8, checkpointing="full", **ENDS)),
    "M085": Titan(titan(titan_llama.QWEN_3_32B, 1, 4096, 8, checkpointing="full", **ENDS)),
    "M095": Titan(titan(titan_llama.DEBUG, 4, 2048, 2, saved=titan_run.SAVED_IN_2026, **ENDS), target=T4),
    "M137": Litgpt(litgpt.PHI_1_5, 2, 1044),
    "M139": Litgpt(litgpt.STABLELM_ALPHA_3B, 1, 1034),
    "M140": Litgpt(litgpt.STABLELM_ALPHA_3B, 2, 1034),
    "M142": Litgpt(litgpt.LLAMA_2_7B, 1, 1304),
    "M145": Litgpt(litgpt.LLAMA_2_7B, 2, 1304),
}
