"""The subject of an audit as a user names it: a run, a run's file, a preset, a function of their own, a config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchledger.cli.architecture import builder, is_architecture
from torchledger.cli.asked import ask
from torchledger.cli.own import is_own, load_function, of_the_user, users_error
from torchledger.cli.runs import load_run_config

if TYPE_CHECKING:
    from torchledger.auditor import Subject
    from torchledger.trainer import RunConfig
    from torchledger.trainer.setup import Setup

SEED = 1337  # of weights and tokens that nobody chose


def subject_of(target: str, options: Mapping[str, Any]) -> Subject:
    """What TARGET names, on the CPU or the device that its run trains on.

    Args:
        target: a run's folder or checkpoint; a run's file (TOML with `data`); a preset or a model's file; a function of
            the user's (`file.py:build`); a Hugging Face config.json, which transformers builds.
        options: `batch_size`, `sequence_length`, `precision` (nothing is the target's own), `seed`, and `sets`.

    Raises:
        click.UsageError: it is none of these, or makes no batch.
        ConfigError, SpecError, SetupError, CheckpointError and others that say what is wrong with it.
    """
    path = Path(target)
    if is_own(target):
        return _own(target, options)
    if is_architecture(target) and not (path / "config.toml").is_file():
        return _architecture(target, options)
    if (place := _run_folder(path)) is not None:
        return _of_run(target, place, options)
    if path.suffix == ".toml" and path.is_file() and "data" in _tables(path):
        return _of_config(target, load_run_config(path, options.get("sets", ())).value, options)
    return _preset(target, options)


def _tables(path: Path) -> Mapping[str, Any]:
    from torchledger import config

    found: Mapping[str, Any] = config.read_file(path)[0].table
    return found


def _run_folder(path: Path) -> Path | None:
    """The run that a path is, or lies in."""
    if path.is_file():
        return None
    return next((each for each in (path, *path.parents) if (each / "config.toml").is_file()), None)


def _of_run(target: str, folder: Path, options: Mapping[str, Any]) -> Subject:
    """A run as its newest checkpoint, or the one that was named, left it; the batch is the next one."""
    from torchledger.trainer import RunFolder
    from torchledger.trainer.checkpoint import checkpoint_at, load_optimizer, load_weights

    checkpoint = checkpoint_at(Path(target))
    config = RunFolder.open(folder).config()
    setup = _setup(config, options)
    subject = _of_setup(target, setup, _seed(options, setup.recipe.seed))
    assert subject.optimizer is not None
    manifest = load_weights(checkpoint, subject.model)  # type: ignore[arg-type]  # it is the trainer's own
    load_optimizer(checkpoint, manifest, subject.model, subject.optimizer)  # type: ignore[arg-type]  # as above
    assert subject.batches is not None
    return replace(subject, batch=subject.batches(manifest.step), initialization=None, initial_stds=None)


def _of_config(target: str, config: RunConfig, options: Mapping[str, Any]) -> Subject:
    setup = _setup(config, options)
    return _of_setup(target, setup, _seed(options, setup.recipe.seed))


def _setup(config: RunConfig, options: Mapping[str, Any]) -> Setup:
    from torchledger.trainer import resolve

    recipe = {
        name: options[name] for name in ("batch_size", "sequence_length", "precision") if options.get(name) is not None
    }
    chosen = replace(config, recipe=replace(config.recipe, **recipe))
    if "precision" in recipe or chosen.precision == "auto":
        chosen = replace(chosen, precision="recipe")  # nothing that an audit says may hang on what a clock measured
    return resolve(replace(chosen, attention="recipe" if chosen.attention == "auto" else chosen.attention))


def _of_setup(name: str, setup: Setup, seed: int) -> Subject:
    """A run as it begins. The rebuilt one takes another seed for weights and order of the data alike."""
    from torchledger.trainer.batches import Batches
    from torchledger.trainer.step import build_step

    recipe = replace(setup.local_recipe, seed=seed)
    with setup.device:
        step = build_step(setup.spec, recipe, weights=setup.config.initial_weights)
    rows, length = recipe.batch_size // recipe.accumulation_steps, recipe.sequence_length
    data = Batches(setup.data.train, rows, length, seed, device=setup.device, documents=recipe.document_mask)
    made = _trained(name, step, setup.spec.vocab_size, data.batch, lambda other: _of_setup(name, setup, other))
    is_drawn = setup.config.initial_weights is None
    return made if is_drawn else replace(made, initialization=None, initial_stds=None)


def _preset(target: str, options: Mapping[str, Any]) -> Subject:
    """A model by name, on tokens drawn at random."""
    asked = {name: options.get(name) for name in ("batch_size", "sequence_length", "precision")}
    found = ask(target, asked, options.get("sets", ()))
    length = options.get("sequence_length") or min(found.recipe.sequence_length, 128)
    recipe = replace(found.recipe, sequence_length=length, batch_size=options.get("batch_size") or 2)

    def make(seed: int) -> Subject:
        from torchledger.trainer.step import build_step

        step = build_step(found.model, replace(recipe, seed=seed))
        batches = _random_tokens(found.model.vocab_size, recipe.batch_size, length, seed)
        return _trained(found.model.name, step, found.model.vocab_size, batches, make)

    return make(_seed(options, recipe.seed))


def _trained(
    name: str, step: Any, vocab_size: int, batches: Callable[[int], Any], rebuild: Callable[[int], Subject]
) -> Subject:
    """Our own trainer's step as a subject."""
    from torchledger.auditor import Subject
    from torchledger.trainer.init import standard_deviations

    recipe = step.recipe
    autocast = {"bf16": "bf16", "fp16": "fp16"}.get(recipe.precision, "fp32")
    return Subject(
        name=name,
        model=step.model.train(),
        batch=batches(0),
        optimizer=step.optimizer,
        precision=autocast,  # type: ignore[arg-type]  # a dict's values are plain texts to mypy
        gradient_clip=recipe.optimizer.gradient_clip,
        loss_scale=1.0 if step.loss_scale is None else step.loss_scale.state()["loss_scale"].item(),
        vocab_size=vocab_size,
        initialization=recipe.initialization,
        initial_stds=standard_deviations(step.model, recipe.initialization, recipe.mup_base_size),
        batches=batches,
        rebuild=rebuild,
    )


def _random_tokens(vocab_size: int, rows: int, length: int, seed: int) -> Callable[[int], Any]:
    """Batch n of tokens that mean nothing: inputs and, one later, targets."""

    def batch(n: int) -> Any:
        import torch

        generator = torch.Generator().manual_seed(seed * 1_000_003 + n)
        tokens = torch.randint(vocab_size, (rows, length + 1), generator=generator)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    return batch


def _own(target: str, options: Mapping[str, Any]) -> Subject:
    """A function of the user's: what it may return is what `count --trace` takes, a step left out."""
    _refuse_beside(target, options, ("batch_size", "sequence_length", "sets"))
    function = load_function(target)

    def make(seed: int) -> Subject:
        import torch

        torch.manual_seed(seed)
        with of_the_user():
            try:
                made = function()
            except (Exception, SystemExit) as error:
                raise users_error(target, error) from error
        return _sorted(target, made, options, make)

    return make(_seed(options, SEED))


def _refuse_beside(target: str, options: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Refuse what the target decides itself.

    Raises:
        click.UsageError: an option that would change nothing.
    """
    spelled = {"batch_size": "--batch", "sequence_length": "--sequence", "sets": "--set"}
    given = [spelled[name] for name in names if options.get(name)]
    if given:
        raise click.UsageError(f"{' and '.join(given)} would change nothing: {target} makes its own model and batch")


def _architecture(target: str, options: Mapping[str, Any]) -> Subject:
    """A config.json as transformers builds it, with weights as it draws them, on tokens drawn at random."""
    _refuse_beside(target, options, ("sets",))

    def make(seed: int) -> Subject:
        import torch

        torch.manual_seed(seed)
        length = options.get("sequence_length") or 128
        made = builder(target, batch_size=options.get("batch_size") or 2, sequence_length=length)()
        vocab_size = getattr(made["model"].config.get_text_config(), "vocab_size", None)
        if vocab_size is not None and "input_ids" in made["batch"]:
            generator = torch.Generator().manual_seed(seed)
            tokens = torch.randint(vocab_size, made["batch"]["input_ids"].shape, generator=generator)
            made["batch"] = {**made["batch"], "input_ids": tokens}
            if "labels" in made["batch"] and made["batch"]["labels"].shape == tokens.shape:
                made["batch"]["labels"] = tokens.clone()
        made["optimizer"] = torch.optim.AdamW
        return replace(_sorted(target, made, options, make), vocab_size=vocab_size)

    return make(_seed(options, SEED))


def _seed(options: Mapping[str, Any], own: int) -> int:
    """The seed that was asked for, 0 too, or the target's own."""
    return own if options.get("seed") is None else int(options["seed"])


def _batches(made: Any) -> Callable[[int], Any] | None:
    """A function of the batch's number as it is; what can be gone through (a DataLoader) in order."""
    if made is None or (callable(made) and not hasattr(made, "__iter__")):
        return made  # type: ignore[no-any-return]  # what the user wrote
    from torchledger.auditor.determinism_data import InOrder

    return InOrder(made)


def _sorted(target: str, made: Any, options: Mapping[str, Any], rebuild: Callable[[int], Subject]) -> Subject:
    """What a function returned as a subject."""
    from torch import nn

    from torchledger.auditor import Subject

    parts = dict(made) if isinstance(made, Mapping) else {}
    if isinstance(made, (tuple, list)) and len(made) == 2:
        parts = {"model": made[0], "batch": made[1]}
    model = made if isinstance(made, nn.Module) else parts.get("model")
    batches = _batches(parts.get("batches"))
    batch = parts.get("batch", getattr(model, "example_input_array", None))
    if batch is None and batches is not None:
        batch = batches(0)
    if not isinstance(model, nn.Module) or batch is None:
        raise click.UsageError(
            f"{target} makes no model with a batch to run it on: return (model, batch), or a dict with `model`, "
            "`batch` (or `batches`: a DataLoader, or a function of n) and, where the model returns no loss, `loss`"
        )
    optimizer = parts.get("optimizer")
    return Subject(
        name=target,
        model=model,
        batch=batch,
        loss=parts.get("loss"),
        optimizer=optimizer(model.parameters()) if callable(optimizer) else optimizer,
        precision=options.get("precision") or parts.get("precision", "fp32"),
        gradient_clip=parts.get("gradient_clip", 0.0),
        loss_scale=parts.get("loss_scale", 1.0),
        batches=batches,
        rebuild=rebuild,
    )
