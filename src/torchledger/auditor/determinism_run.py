"""`run`: a few training steps of a subject from a seed, watched, with nothing left behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from torchledger.auditor.determinism_hash import combined, hash_of, tensor_hash
from torchledger.auditor.determinism_watch import Captured, Seen, Watch
from torchledger.auditor.errors import AuditError
from torchledger.auditor.seeding import seed_everything, stream_states
from torchledger.auditor.subject import Subject, left_as_it_was


@dataclass(frozen=True, slots=True)
class Run:
    """What a run was, as far as it is looked at.

    Attributes:
        seen: its operations in order.
        losses: of each step, before its update.
        initial: a hash of each parameter and buffer before the first step.
        data: a hash of each batch that was used.
        final_hash: of all parameters and buffers after the last step, and of gradients where no optimizer took them.
        drew: numbers of the operations that drew random numbers.
        streams: names of the global random streams that were drawn from.
        captured: tensors of the operation that was asked for.
        hashed_bytes: bytes that were hashed.
    """

    seen: tuple[Seen, ...]
    losses: tuple[float, ...]
    initial: Mapping[str, int | None]
    data: tuple[str, ...]
    final_hash: int | None
    drew: tuple[int, ...] = ()
    streams: tuple[str, ...] = ()
    captured: Captured | None = None
    hashed_bytes: int = 0

    def told(self) -> dict[str, Any]:
        """Everything but captured tensors as values that JSON has; losses exactly, as hexadecimal texts."""
        return {
            "seen": [list(each) for each in self.seen],
            "losses": [loss.hex() for loss in self.losses],
            "initial": dict(self.initial),
            "data": list(self.data),
            "final_hash": self.final_hash,
            "drew": list(self.drew),
            "streams": list(self.streams),
        }

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Run:
        """The run that `told` was written of, in another process."""
        return cls(
            seen=tuple(Seen._make((*row[:5], tuple(row[5]), tuple(row[6]))) for row in told["seen"]),
            losses=tuple(float.fromhex(loss) for loss in told["losses"]),
            initial=told["initial"],
            data=tuple(told["data"]),
            final_hash=told["final_hash"],
            drew=tuple(told["drew"]),
            streams=tuple(told["streams"]),
        )


def run(
    subject: Subject,
    seed: int,
    steps: int,
    *,
    fill: float = 0.0,
    capture: int | None = None,
    threads: int | None = None,
    others: Mapping[str, int] | None = None,
) -> Run:
    """Train a subject for some steps, each on the next batch, and put it back as it was.

    Args:
        subject: what to train.
        seed: of every global random stream, before the first batch.
        steps: how many.
        fill: what memory that nobody has written is filled with.
        capture: number of the operation whose tensors are kept.
        threads: how many threads torch's kernels take; nothing as it is.
        others: another seed for a stream, by name.

    Raises:
        AuditError: the step fails, with the module and what was said.
    """
    with left_as_it_was(subject):
        _without_gradients(subject)
        if threads is not None:
            torch.set_num_threads(threads)
        initial = weights(subject)
        seed_everything(seed, **(others or {}))
        before = stream_states()
        watch = Watch(subject.model, fill=fill, capture=capture)
        losses, data = [], []
        for step in range(steps):
            with _told(subject, watch):
                batch = subject.batch if subject.batches is None else subject.batches(step)
                data.append(hash_of(batch))
                with watch:
                    losses.append(train_step(replace(subject, batch=batch)))
        after = stream_states()
        return Run(
            seen=tuple(watch.seen),
            losses=tuple(loss.item() for loss in losses),
            initial=initial,
            data=tuple(data),
            final_hash=combined([*weights(subject).values(), *_gradients(subject)]),
            drew=tuple(watch.drew),
            streams=tuple(name for name, state in before.items() if state != after[name]),
            captured=watch.captured,
            hashed_bytes=watch.num_bytes,
        )


def train_step(subject: Subject) -> Tensor:
    """Forward, backward, clip, update, gradients freed; the loss before the update.

    Raises:
        AuditError: the loss wants no gradient.
    """
    loss = subject.forward()
    if not loss.requires_grad:
        raise AuditError(
            f"nothing of {subject.name} is trained: its loss depends on no parameter that wants a gradient"
        )
    scale = subject.loss_scale
    (loss if scale == 1 else loss * scale).backward()  # type: ignore[no-untyped-call]  # torch's function has no types
    if scale != 1:
        for parameter in subject.model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(scale)
    if subject.gradient_clip > 0:
        torch.nn.utils.clip_grad_norm_(subject.model.parameters(), subject.gradient_clip)
    if subject.optimizer is not None:
        subject.optimizer.step()
        _without_gradients(subject)
    return loss.detach()


def weights(subject: Subject) -> dict[str, int | None]:
    """A hash of each parameter and buffer, by name."""
    named = (*subject.model.named_parameters(), *subject.model.named_buffers())
    return {name: tensor_hash(tensor.detach()) for name, tensor in named}


def _gradients(subject: Subject) -> list[int | None]:
    """Hashes of the gradients that are there."""
    return [tensor_hash(p.grad.detach()) for p in subject.model.parameters() if p.grad is not None]


def _without_gradients(subject: Subject) -> None:
    owners: list[Any] = [subject.model, *([] if subject.optimizer is None else [subject.optimizer])]
    for owner in owners:
        owner.zero_grad(set_to_none=True)


@contextlib.contextmanager
def _told(subject: Subject, watch: Watch) -> Iterator[None]:
    """An error of the user's code as a message that says where it was raised."""
    try:
        yield
    except AuditError:
        raise
    except Exception as error:
        where = watch.failed_in(error)
        said = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        raise AuditError(
            f"a step of {subject.name} fails{f' in {where}' if where else ''}: {said}; audit what runs by itself first"
        ) from error
