"""Models of text with images."""

from __future__ import annotations

from typing import Any

import torch

from zoo.batches import BATCH
from zoo.model import Batch, Config, Size, ZooModel

_TEXT: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
_VISION: dict[str, Any] = {
    "image_size": 16,
    "patch_size": 4,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_DECODER: dict[str, Any] = {**_TEXT, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}


def _pairs(**more: Any) -> Any:
    """As many texts as images, to be told apart."""

    def batch(config: Config, size: Size) -> Batch:
        text, vision = config.text_config, config.vision_config
        length = 8 if size == "tiny" else text.max_position_embeddings
        ids = torch.randint(3, text.vocab_size, (BATCH[size] * 2, length))
        pixels = torch.randn(BATCH[size] * 2, 3, vision.image_size, vision.image_size)
        return {"input_ids": ids, "pixel_values": pixels, "return_loss": True, **more}

    return batch


def _image_then_text(config: Config, size: Size) -> Batch:
    """The image's tokens, then text."""
    count, text = BATCH[size], 8 if size == "tiny" else 512
    side = config.vision_config.image_size
    num_image_tokens = (side // config.vision_config.patch_size) ** 2
    vocabulary = config.text_config.vocab_size
    image = torch.full((count, num_image_tokens), config.image_token_id)
    ids = torch.cat([image, torch.randint(3, vocabulary - 2, (count, text))], dim=1)
    return {"input_ids": ids, "pixel_values": torch.randn(count, 3, side, side), "labels": ids.clone()}


def _image_prefix(config: Config, size: Size) -> Batch:
    """PaliGemma: the image and the question are seen in both directions."""
    batch = _image_then_text(config, size)
    return {**batch, "token_type_ids": torch.zeros_like(batch["input_ids"])}


def _captions(config: Config, size: Size) -> Batch:
    """Images, and the text that describes them."""
    vision, length = config.vision_config, 8 if size == "tiny" else 40
    ids = torch.randint(3, config.text_config.vocab_size, (BATCH[size], length))
    pixels = torch.randn(BATCH[size], 3, vision.image_size, vision.image_size)
    return {"input_ids": ids, "pixel_values": pixels, "labels": ids.clone()}


def _question(config: Config, size: Size) -> Batch:
    length = 8 if size == "tiny" else 40
    return {
        "input_ids": torch.randint(3, config.vocab_size, (BATCH[size], length)),
        "pixel_values": torch.randn(BATCH[size], 3, config.image_size, config.image_size),
        "labels": torch.rand(BATCH[size], config.num_labels),
    }


def _multimodal(name: str, class_name: str, tiny: dict[str, Any], size_name: str, batch: Any, **more: Any) -> ZooModel:
    return ZooModel(name, "multimodal", class_name, tiny, more.pop("published", {}), size_name, batch, **more)


_LLAVA_VISION = {**_VISION, "model_type": "clip_vision_model"}

MULTIMODAL = [
    _multimodal(
        "CLIP",
        "CLIPModel",
        {
            "text_config": {**_TEXT, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0},
            "vision_config": _VISION,
            "projection_dim": 16,
        },
        "clip-vit-base-patch32",
        _pairs(),
    ),
    _multimodal(
        "SigLIP",
        "SiglipModel",
        {"text_config": {**_TEXT, "projection_size": 32}, "vision_config": _VISION},
        "siglip-base-patch16-224",
        _pairs(),
    ),
    _multimodal(
        "LLaVA",
        "LlavaForConditionalGeneration",
        {"text_config": {**_DECODER, "model_type": "llama"}, "vision_config": _LLAVA_VISION, "image_token_index": 127},
        "llava-1.5-7b",
        _image_then_text,
        published={"text_config": {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096}},
        asks_values=True,
    ),
    _multimodal(
        "PaliGemma",
        "PaliGemmaForConditionalGeneration",
        {
            "text_config": {**_DECODER, "model_type": "gemma"},
            "vision_config": {
                **_VISION,
                "model_type": "siglip_vision_model",
                "projection_dim": 32,
                "vision_use_head": False,
            },
            "image_token_index": 127,
            "projection_dim": 32,
        },
        "paligemma-3b",
        _image_prefix,
        published={
            "text_config": {
                "model_type": "gemma",
                "vocab_size": 257216,
                "hidden_size": 2048,
                "intermediate_size": 16384,
                "num_hidden_layers": 18,
                "num_attention_heads": 8,
                "num_key_value_heads": 1,
            },
            "vision_config": {
                "model_type": "siglip_vision_model",
                "hidden_size": 1152,
                "intermediate_size": 4304,
                "num_hidden_layers": 27,
                "num_attention_heads": 16,
                "image_size": 224,
                "patch_size": 14,
                "projection_dim": 2048,
                "vision_use_head": False,
            },
            "image_token_index": 257152,
            "projection_dim": 2048,
        },
        asks_values=True,
    ),
    _multimodal(
        "ViLT",
        "ViltForQuestionAnswering",
        {**_TEXT, "image_size": 16, "patch_size": 4},
        "vilt-b32-vqa",
        _question,
        published={"num_labels": 3129},
        asks_values=True,
    ),
    _multimodal(
        "BLIP",
        "BlipForConditionalGeneration",
        {
            "text_config": {
                **_TEXT,
                "encoder_hidden_size": 32,
                "bos_token_id": 1,
                "eos_token_id": 2,
                "sep_token_id": 2,
                "pad_token_id": 0,
            },
            "vision_config": _VISION,
            "projection_dim": 16,
        },
        "blip (defaults of transformers)",
        _captions,
    ),
]
