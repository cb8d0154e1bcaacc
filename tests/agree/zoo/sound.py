"""Models of sound."""

from __future__ import annotations

from typing import Any

import torch

from zoo.batches import BATCH
from zoo.model import Batch, Config, Size, ZooModel

_WAV2VEC2: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "conv_dim": [16, 16],
    "conv_kernel": [8, 4],
    "conv_stride": [4, 2],
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "classifier_proj_size": 16,
}
_NO_MASKS: dict[str, Any] = {"apply_spec_augment": False, "layerdrop": 0.0}


def _mel_and_text(config: Config, size: Size) -> Batch:
    frames, text = 2 * config.max_source_positions, 8 if size == "tiny" else 448
    return {
        "input_features": torch.randn(BATCH[size], config.num_mel_bins, frames),
        "labels": torch.randint(3, config.vocab_size, (BATCH[size], text)),
    }


def _wave(samples: int, published: int = 160_000) -> Any:
    def batch(config: Config, size: Size) -> Batch:
        return {
            "input_values": torch.randn(BATCH[size], samples if size == "tiny" else published),
            "labels": torch.randint(0, config.num_labels, (BATCH[size],)),
        }

    return batch


def _spectrogram(config: Config, size: Size) -> Batch:
    return {
        "input_values": torch.randn(BATCH[size], config.max_length, config.num_mel_bins),
        "labels": torch.randint(0, config.num_labels, (BATCH[size],)),
    }


def _features_and_text(config: Config, size: Size) -> Batch:
    frames, text = (32, 8) if size == "tiny" else (1024, 256)
    return {
        "input_features": torch.randn(BATCH[size], frames, config.input_feat_per_channel),
        "labels": torch.randint(3, config.vocab_size, (BATCH[size], text)),
    }


SOUND = [
    ZooModel(
        "Whisper",
        "sound",
        "WhisperForConditionalGeneration",
        {
            "vocab_size": 128,
            "num_mel_bins": 8,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "max_source_positions": 16,
            "max_target_positions": 16,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
        {},
        "whisper-tiny",
        _mel_and_text,
    ),
    ZooModel(
        "wav2vec 2.0",
        "sound",
        "Wav2Vec2ForSequenceClassification",
        {**_WAV2VEC2, **_NO_MASKS},
        _NO_MASKS,
        "wav2vec2-base",
        _wave(256),
        note="without SpecAugment, whose spans are drawn in NumPy",
    ),
    ZooModel(
        "HuBERT",
        "sound",
        "HubertForSequenceClassification",
        {**_WAV2VEC2, **_NO_MASKS},
        _NO_MASKS,
        "hubert-base",
        _wave(256),
        note="without SpecAugment",
    ),
    ZooModel(
        "WavLM",
        "sound",
        "WavLMForSequenceClassification",
        {**_WAV2VEC2, **_NO_MASKS},
        _NO_MASKS,
        "wavlm-base",
        _wave(256),
        note="without SpecAugment; gated relative positions",
    ),
    ZooModel(
        "AST",
        "sound",
        "ASTForAudioClassification",
        {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "patch_size": 4,
            "frequency_stride": 4,
            "time_stride": 4,
            "max_length": 16,
            "num_mel_bins": 16,
        },
        {"num_labels": 527},
        "ast-audioset",
        _spectrogram,
    ),
    ZooModel(
        "Speech2Text",
        "sound",
        "Speech2TextForConditionalGeneration",
        {
            "vocab_size": 128,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "conv_channels": 16,
            "input_feat_per_channel": 8,
            "max_source_positions": 64,
            "max_target_positions": 64,
            "decoder_start_token_id": 2,
        },
        {},
        "s2t-small",
        _features_and_text,
    ),
]
