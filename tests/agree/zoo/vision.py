"""Models of images: transformers, convolutions, detection, segmentation."""

from __future__ import annotations

from typing import Any

import torch

from zoo.batches import BATCH, images
from zoo.model import Batch, Config, Size, ZooModel

_VIT: dict[str, Any] = {
    "image_size": 16,
    "patch_size": 4,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_DETR: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_queries": 5,
}
#: Classes of the published classifiers.
_IMAGENET: dict[str, Any] = {"num_labels": 1000}
_RESNET: dict[str, Any] = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}


def _boxes_and_classes(output: Any, _batch: Any) -> torch.Tensor:
    """The classes and boxes, summed: the Hungarian matching of DETR's own loss needs values."""
    return output.logits.float().square().mean() + output.pred_boxes.float().square().mean()


def _depth(output: Any, _batch: Any) -> torch.Tensor:
    return output.predicted_depth.square().mean()


def _hidden(output: Any, _batch: Any) -> torch.Tensor:
    return output.last_hidden_state.square().mean()


def _square(side: int, published: int) -> Any:
    """Images whose size is not in the configuration."""

    def batch(config: Config, size: Size) -> Batch:
        pixels = side if size == "tiny" else published
        channels = getattr(config, "num_channels", 3)
        count = BATCH[size]
        return {
            "pixel_values": torch.randn(count, channels, pixels, pixels),
            "labels": torch.randint(0, config.num_labels, (count,)),
        }

    return batch


def _no_labels(side: int, published: int) -> Any:
    def batch(config: Config, size: Size) -> Batch:
        return {"pixel_values": _square(side, published)(config, size)["pixel_values"]}

    return batch


def _segments(config: Config, size: Size) -> Batch:
    side = 32 if size == "tiny" else 512
    return {
        "pixel_values": torch.randn(BATCH[size], 3, side, side),
        "labels": torch.randint(0, config.num_labels, (BATCH[size], side, side)),
    }


def _noise(config: Config, size: Size) -> Batch:
    """Masked autoencoding shuffles patches by noise, which may be given."""
    patches = (config.image_size // config.patch_size) ** 2
    return {
        "pixel_values": torch.randn(BATCH[size], 3, config.image_size, config.image_size),
        "noise": torch.rand(BATCH[size], patches),
    }


def _video(config: Config, size: Size) -> Batch:
    return {
        "pixel_values": torch.randn(BATCH[size], config.num_frames, 3, config.image_size, config.image_size),
        "labels": torch.randint(0, config.num_labels, (BATCH[size],)),
    }


def _vision(name: str, class_name: str, tiny: dict[str, Any], size_name: str, batch: Any, **more: Any) -> ZooModel:
    return ZooModel(name, "vision", class_name, tiny, more.pop("published", _IMAGENET), size_name, batch, **more)


VISION = [
    _vision("ViT", "ViTForImageClassification", _VIT, "vit-base-patch16", images()),
    _vision("DeiT", "DeiTForImageClassification", _VIT, "deit-base", images()),
    _vision(
        "BEiT",
        "BeitForImageClassification",
        {**_VIT, "use_relative_position_bias": True},
        "beit-base-patch16-224",
        images(),
        published={**_IMAGENET, "use_relative_position_bias": True},
    ),
    _vision(
        "DINOv2",
        "Dinov2ForImageClassification",
        _VIT,
        "dinov2-base",
        images(),
        published={**_IMAGENET, "image_size": 518, "patch_size": 14},
    ),
    _vision(
        "ViT-MAE",
        "ViTMAEForPreTraining",
        {
            **_VIT,
            "decoder_hidden_size": 16,
            "decoder_num_hidden_layers": 1,
            "decoder_num_attention_heads": 2,
            "decoder_intermediate_size": 32,
        },
        "vit-mae-base",
        _noise,
        published={},
    ),
    _vision(
        "Swin",
        "SwinForImageClassification",
        {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4},
        "swin-tiny",
        images(),
        note="attention in shifted windows",
    ),
    _vision(
        "Swin v2",
        "Swinv2ForImageClassification",
        {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4},
        "swinv2-tiny-patch4-window8-256",
        images(),
        published={**_IMAGENET, "image_size": 256, "window_size": 8},
    ),
    _vision(
        "ConvNeXt",
        "ConvNextForImageClassification",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
        "convnext-tiny",
        _square(32, 224),
    ),
    _vision(
        "ConvNeXt v2",
        "ConvNextV2ForImageClassification",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
        "convnextv2-tiny",
        _square(32, 224),
    ),
    _vision("ResNet", "ResNetForImageClassification", _RESNET, "resnet-50", _square(32, 224)),
    _vision("RegNet", "RegNetForImageClassification", {**_RESNET, "groups_width": 8}, "regnet-y-040", _square(32, 224)),
    _vision(
        "MobileNetV2",
        "MobileNetV2ForImageClassification",
        {"depth_multiplier": 0.35},
        "mobilenet_v2_1.0_224",
        _square(32, 224),
        published={"num_labels": 1001},
        note="depthwise convolutions",
    ),
    _vision(
        "EfficientNet",
        "EfficientNetForImageClassification",
        {"width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320, "image_size": 32},
        "efficientnet-b7",
        images(),
    ),
    _vision(
        "MobileViT",
        "MobileViTForImageClassification",
        {
            "image_size": 32,
            "hidden_sizes": [16, 24, 32],
            "neck_hidden_sizes": [8, 8, 16, 16, 16, 16, 32],
            "num_attention_heads": 4,
        },
        "mobilevit-small",
        images(),
    ),
    _vision(
        "PoolFormer",
        "PoolFormerForImageClassification",
        {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]},
        "poolformer-s12",
        _square(32, 224),
    ),
    _vision(
        "PVT v2",
        "PvtV2ForImageClassification",
        {
            "image_size": 32,
            "hidden_sizes": [8, 8, 16, 16],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 1, 2, 2],
            "mlp_ratios": [2, 2, 2, 2],
        },
        "pvt-v2-b0",
        _square(32, 224),
        note="keys and values of fewer positions",
    ),
    _vision(
        "FocalNet",
        "FocalNetForImageClassification",
        {
            "image_size": 32,
            "embed_dim": 8,
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
        },
        "focalnet-tiny",
        images(),
        note="gated convolutions in place of attention",
    ),
    _vision(
        "Hiera",
        "HieraForImageClassification",
        {
            "image_size": [32, 32],
            "patch_size": [7, 7],
            "patch_stride": [4, 4],
            "patch_padding": [3, 3],
            "embed_dim": 8,
            "depths": [1, 1],
            "num_heads": [1, 2],
            "masked_unit_size": [4, 4],
            "masked_unit_attention": [True, False],
            "query_stride": [2, 2],
            "num_query_pool": 1,
        },
        "hiera-base",
        _square(32, 224),
    ),
    _vision(
        "LeViT",
        "LevitForImageClassification",
        {
            "image_size": 32,
            "hidden_sizes": [16, 16, 16],
            "num_attention_heads": [2, 2, 2],
            "depths": [1, 1, 1],
            "key_dim": [4, 4, 4],
        },
        "levit-128",
        images(published=2),
    ),
    _vision(
        "DETR",
        "DetrForObjectDetection",
        {
            **_DETR,
            "use_timm_backbone": False,
            "backbone": None,
            "use_pretrained_backbone": False,
            "backbone_config": {"model_type": "resnet", **_RESNET, "out_features": ["stage2"]},
        },
        "detr-resnet-50",
        _no_labels(32, 800),
        loss=_boxes_and_classes,
        published={
            "num_labels": 91,
            "use_timm_backbone": False,
            "backbone": None,
            "use_pretrained_backbone": False,
            "backbone_config": {"model_type": "resnet", "out_features": ["stage4"]},
        },
        asks_values=True,
    ),
    _vision(
        "YOLOS",
        "YolosForObjectDetection",
        {**_VIT, "image_size": [16, 16], "num_detection_tokens": 5},
        "yolos (defaults of transformers)",
        _no_labels(16, 512),
        published={},
        loss=_boxes_and_classes,
    ),
    _vision(
        "SegFormer",
        "SegformerForSemanticSegmentation",
        {
            "hidden_sizes": [8, 16, 16, 16],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 2],
            "decoder_hidden_size": 16,
        },
        "segformer-b0-ade",
        _segments,
        published={"num_labels": 150},
    ),
    _vision(
        "DPT",
        "DPTForDepthEstimation",
        {
            **_VIT,
            "image_size": 32,
            "patch_size": 8,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 8, 16, 16],
            "fusion_hidden_size": 16,
            "reassemble_factors": [4, 2, 1, 0.5],
        },
        "dpt-large",
        _no_labels(32, 384),
        published={
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "backbone_out_indices": [5, 11, 17, 23],
            "neck_hidden_sizes": [256, 512, 1024, 1024],
            "image_size": 384,
        },
        loss=_depth,
    ),
    _vision(
        "VideoMAE",
        "VideoMAEForVideoClassification",
        {**_VIT, "num_frames": 4},
        "videomae-base-kinetics",
        _video,
        published={"num_labels": 400},
    ),
]
