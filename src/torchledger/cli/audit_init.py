"""`torchledger audit init`: whether weights begin so that signals and gradients keep their size by depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from torchledger.cli.audit_options import answer, audit_options, subject
from torchledger.cli.documented import Documented
from torchledger.cli.progress import Progress

if TYPE_CHECKING:
    from torch import nn

    from torchledger.auditor import Subject

#: Schemes for our own models are the trainer's; any other module has those that its matrices' use decides.
_OURS = ("fan_in", "gpt2", "xavier", "kaiming", "mup")
_ANY = ("fan_in", "gpt2", "xavier", "kaiming", "orthogonal")


@click.command(
    cls=Documented,
    examples=(
        "torchledger audit init gpt2 --set model.num_layers=2 --sequence 32     a preset, as our trainer draws it",
        "torchledger audit init gpt2 --set model.num_layers=2 --set model.vocab_size=500 --try gpt2   before and after",
    ),
)
@audit_options
@click.option(
    "--try",
    "attempt",
    type=click.Choice(tuple(dict.fromkeys((*_OURS, *_ANY)))),
    help="Draw the weights by this scheme as well, and show before and after.",
)
def command(target: str, attempt: str | None, **options: Any) -> None:
    """Whether weights begin so that signals and gradients keep their size by depth.

    One step is run and looked at. Told are signals and gradients by depth; the scheme that each matrix was drawn by,
    with its sampling error; neurons that are zero, constant or copies; closed ReLUs and saturated gates; and the first
    loss against ln(vocabulary).
    """
    from torchledger.auditor import audit_init

    asked = subject(target, options)
    seed = int(options.get("seed") or 0)
    initialiser = None if attempt is None else _initialiser(asked, attempt, seed)
    progress = Progress(foretells=False)
    try:
        record = audit_init(asked, attempt=initialiser, attempt_name=attempt or "", seed=seed, tell=progress)
    finally:
        progress.close()
    answer(record, options)


def _initialiser(asked: Subject, scheme: str, seed: int) -> str | Callable[[nn.Module], None]:
    """The trainer's own scheme for its own model, the auditor's for any other.

    Raises:
        click.UsageError: the model is not one that the scheme is for.
    """
    from torchledger.trainer.init import initialize
    from torchledger.trainer.model import Transformer

    if isinstance(asked.model, Transformer):
        if scheme not in _OURS:
            raise click.UsageError(f"--try {scheme} is for models of your own; ours are drawn by {', '.join(_OURS)}")
        return lambda model: initialize(model, scheme, seed)  # type: ignore[arg-type]  # checked above
    if scheme not in _ANY:
        raise click.UsageError(
            f"--try {scheme} is for models of our trainer; this one can be drawn by {', '.join(_ANY)}"
        )
    return scheme
