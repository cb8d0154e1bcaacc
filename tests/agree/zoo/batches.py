"""What the models of the zoo take: functions that make a batch for a configuration."""

from __future__ import annotations

from typing import Any

import torch

from zoo.model import Batch, Config, Size

#: Sequences of a tiny and of a published batch.
BATCH = {"tiny": 2, "published": 1}
TOKENS = {"tiny": 16, "published": 2048}


def _vocabulary(config: Config) -> int:
    return int(config.get_text_config().vocab_size)


def tokens(
    *, published: int = TOKENS["published"], tiny: int = TOKENS["tiny"], labels: bool = True, **more: Any
) -> Any:
    """Token numbers, and themselves as labels: language models, causal or masked; no more than they have positions."""

    def batch(config: Config, size: Size) -> Batch:
        positions = getattr(config, "max_position_embeddings", None) or published
        shape = (BATCH[size], tiny if size == "tiny" else min(published, positions))
        ids = torch.randint(3, _vocabulary(config), shape)
        return {"input_ids": ids, **({"labels": ids.clone()} if labels else {}), **more}

    return batch


def classified_tokens(*, published: int = 512, tiny: int = TOKENS["tiny"]) -> Any:
    """Token numbers and one class a sequence."""

    def batch(config: Config, size: Size) -> Batch:
        shape = (BATCH[size], tiny if size == "tiny" else published)
        return {
            "input_ids": torch.randint(3, _vocabulary(config), shape),
            "labels": torch.randint(0, config.num_labels, shape[:1]),
        }

    return batch


def source_and_target(*, source: int = 512, target: int = 512, tiny_source: int = 16, tiny_target: int = 8) -> Any:
    """Token numbers for the encoder, labels for the decoder."""

    def batch(config: Config, size: Size) -> Batch:
        count = BATCH[size]
        lengths = (tiny_source, tiny_target) if size == "tiny" else (source, target)
        return {
            "input_ids": torch.randint(3, _vocabulary(config), (count, lengths[0])),
            "labels": torch.randint(3, _vocabulary(config), (count, lengths[1])),
        }

    return batch


def images(*, published: int = BATCH["published"]) -> Any:
    """Images of the configuration's size, and one class an image; `published` of them at the published size."""

    def batch(config: Config, size: Size) -> Batch:
        count, side = BATCH[size] if size == "tiny" else published, config.image_size
        return {
            "pixel_values": torch.randn(count, config.num_channels, side, side),
            "labels": torch.randint(0, config.num_labels, (count,)),
        }

    return batch
