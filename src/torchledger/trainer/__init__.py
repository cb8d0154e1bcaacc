"""The trainer: any decoder-only `ModelSpec`, on one's own text, exactly resumable, its every step told as an event.

::

    from torchledger.trainer.prepare import prepare  # the one name that is also its module's

    prepare("stdlib", "data/stdlib")
    setup = resolve(load(stdlib_config_path(), RunConfig).value)
    for event in train(setup, new_run(setup)):
        ...

    data     prepare, prepared, sources, split, pieces     text to token files
             containers, records, encoding, unfinished     tables and compressed text, workers, going on after a kill
             occupied                                      what a preparation would write over
             tokenizer, entropy, survey
             run_data                                      what a run reads: a prepared folder or a token file
             tokenfile, tokenheader, tokenwriter, durable  the files
             foreign, megatron                             other projects' token files
             order, windows, batches, prefetch             batch n as a function of (seed, n)
             mixture, documents, loader                    of several files by weight, documents told apart
             mixed_data, stream                            the parts of a run's mixture, its batches
    model    model, attention, latent, mlp, moe, norm, position, linear, joint, loss
             head                                          logits, or at once their loss
             prediction, frozen                            more tokens ahead; what is trained of it
             init, initial_weights, activation_scale, seeds first values, random streams
    weights  foreign_weights, foreign_names, weight_layout, export_huggingface  Hugging Face checkpoints, in and out
    step     step, targets, schedule, clipping, kernel     one update, traced and run as the same object
             precision, narrowing, loss_scale              which formats
             optimizer, fused_adamw, one_by_one, update_rules, muon, eight_bit
             in_shares                                     updates of what ranks have parts of
    run      run_config, setup, identity, environment      what is asked, what it comes to
             resume, fallback                              whether it may go on, and from which checkpoint
             loop, session, validation, interrupts, events what happens
             tally, counters, spikes, sliding              what the steps add up to
             oddities, utilization                         what is wrong with them, MFU and HFU
             questions, choices                            multiple choice
             determinism                                   what does not repeat is refused
             compiled                                      layers through torch.compile
             run_folder, metrics, checkpoint, manifest     what stays
             locks, sealed                                 one process in a folder at a time; pages with a checksum
             saving, shards, stored, tensorfile            who writes it, on how many ranks, into which bytes
             selfcheck, export                             whether it came back; its weights as one file
             sample                                        what it writes
    ranks    ranks, layout, process_group                  which process of how many, what each runs
             agreement, lost_ranks, launcher               what one finds all act on; the end of another, of torchrun
             parallel, parallel_data, parallel_tensor      a model spread over them
             key_value_heads                               of fewer heads than ranks, who has which
             parallel_stream, parallel_table, parallel_head, parallel_norm
                                                           what ranks that split matrices tell each other
             held                                          what a rank computes with of a parameter
             placeholders                                  parameters without memory until a rank has its share
             gradient_norm                                 the norm of gradients that they share
    errors   what can go wrong; torch_errors: of what torch tells by words only

Names are loaded when they are first used: `RunConfig` and the data's need no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchledger.trainer.batches import Batches, ValidationBatches
    from torchledger.trainer.checkpoint import checkpoints, latest_checkpoint
    from torchledger.trainer.errors import (
        CheckpointError,
        CheckpointMismatch,
        ForeignWeightsError,
        Nondeterministic,
        NonFinite,
        OutOfMemory,
        RankLost,
        ResumeRefused,
        RunFolderError,
        SetupError,
        TrainError,
    )
    from torchledger.trainer.events import (
        Answered,
        Evaluated,
        Event,
        Finished,
        Interrupted,
        Sampled,
        Saved,
        Spiked,
        Started,
        Step,
        Warned,
    )
    from torchledger.trainer.init import initialize
    from torchledger.trainer.loop import begin_again, new_run, resume_point, train
    from torchledger.trainer.metrics import read_metrics
    from torchledger.trainer.model import Transformer, build
    from torchledger.trainer.precision import PrecisionError
    from torchledger.trainer.prepared import PreparedData, PrepareError, load_prepared
    from torchledger.trainer.questions import ChoicesError
    from torchledger.trainer.resume import resume_changes
    from torchledger.trainer.run_config import MixturePart, RunConfig, SampleConfig, TokenFileConfig, stdlib_config_path
    from torchledger.trainer.run_folder import RunFolder
    from torchledger.trainer.sample import load_model, write_text_from
    from torchledger.trainer.schedule import learning_rate
    from torchledger.trainer.setup import Setup, resolve
    from torchledger.trainer.step import StepResult, TrainStep, build_step, example_batch, micro_batches
    from torchledger.trainer.tokenfile import TokenFile, TokenFileError
    from torchledger.trainer.tokenizer import TokenizerError, load_tokenizer
    from torchledger.trainer.utilization import Yardstick
    from torchledger.trainer.validation import evaluate

_MODULES = {
    "batches": ("Batches", "ValidationBatches"),
    "checkpoint": ("checkpoints", "latest_checkpoint"),
    "errors": (
        "CheckpointError",
        "CheckpointMismatch",
        "ForeignWeightsError",
        "NonFinite",
        "Nondeterministic",
        "OutOfMemory",
        "RankLost",
        "ResumeRefused",
        "RunFolderError",
        "SetupError",
        "TrainError",
    ),
    "events": (
        "Answered",
        "Evaluated",
        "Event",
        "Finished",
        "Interrupted",
        "Sampled",
        "Saved",
        "Spiked",
        "Started",
        "Step",
        "Warned",
    ),
    "init": ("initialize",),
    "loop": ("begin_again", "new_run", "resume_point", "train"),
    "metrics": ("read_metrics",),
    "model": ("Transformer", "build"),
    "precision": ("PrecisionError",),
    "prepared": ("PrepareError", "PreparedData", "load_prepared"),
    "questions": ("ChoicesError",),
    "resume": ("resume_changes",),
    "run_config": ("MixturePart", "RunConfig", "SampleConfig", "TokenFileConfig", "stdlib_config_path"),
    "run_folder": ("RunFolder",),
    "sample": ("load_model", "write_text_from"),
    "schedule": ("learning_rate",),
    "setup": ("Setup", "resolve"),
    "step": ("StepResult", "TrainStep", "build_step", "example_batch", "micro_batches"),
    "utilization": ("Yardstick",),
    "tokenfile": ("TokenFile", "TokenFileError"),
    "tokenizer": ("TokenizerError", "load_tokenizer"),
    "validation": ("evaluate",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Answered",
    "Batches",
    "CheckpointError",
    "CheckpointMismatch",
    "ChoicesError",
    "Evaluated",
    "Event",
    "Finished",
    "ForeignWeightsError",
    "Interrupted",
    "MixturePart",
    "NonFinite",
    "Nondeterministic",
    "OutOfMemory",
    "PrecisionError",
    "PrepareError",
    "PreparedData",
    "RankLost",
    "ResumeRefused",
    "RunConfig",
    "RunFolder",
    "RunFolderError",
    "SampleConfig",
    "Sampled",
    "Saved",
    "Setup",
    "SetupError",
    "Spiked",
    "Started",
    "Step",
    "StepResult",
    "TokenFile",
    "TokenFileConfig",
    "TokenFileError",
    "TokenizerError",
    "TrainError",
    "TrainStep",
    "Transformer",
    "ValidationBatches",
    "Warned",
    "Yardstick",
    "begin_again",
    "build",
    "build_step",
    "checkpoints",
    "evaluate",
    "example_batch",
    "initialize",
    "latest_checkpoint",
    "learning_rate",
    "load_model",
    "load_prepared",
    "load_tokenizer",
    "micro_batches",
    "new_run",
    "read_metrics",
    "resolve",
    "resume_changes",
    "resume_point",
    "stdlib_config_path",
    "train",
    "write_text_from",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
