"""Encoders, and encoders with decoders, of text."""

from __future__ import annotations

from typing import Any

import torch

from zoo.batches import BATCH, TOKENS, classified_tokens, source_and_target, tokens
from zoo.model import Batch, Config, Size, ZooModel

_BERT: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
}
_T5: dict[str, Any] = {
    "vocab_size": 128,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
_STARTED: dict[str, Any] = {"decoder_start_token_id": 0}
_ALL_LAYERS: dict[str, Any] = {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
_BART: dict[str, Any] = {
    "vocab_size": 128,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
}


def _with_token_types(config: Config, size: Size) -> Batch:
    """Tokens padded to whole blocks: Longformer's windows."""
    length = 16 if size == "tiny" else 1024
    ids = torch.randint(3, config.vocab_size, (BATCH[size], length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def _perceived(config: Config, size: Size) -> Batch:
    ids = torch.randint(3, config.vocab_size, (BATCH[size], config.max_position_embeddings))
    return {"inputs": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def _electra_pair(config: Config, size: Size) -> Batch:
    ids = torch.randint(3, config.vocab_size, (BATCH[size], TOKENS["tiny"] if size == "tiny" else 512))
    return {"input_ids": ids, "labels": torch.randint(0, 2, ids.shape)}


def _encoder(name: str, class_name: str, tiny: dict[str, Any], size_name: str, **more: Any) -> ZooModel:
    published = more.pop("published", {})
    batch = more.pop("batch", tokens(published=512))
    return ZooModel(name, "encoder", class_name, tiny, published, size_name, batch, **more)


def _pair(name: str, class_name: str, tiny: dict[str, Any], size_name: str, **more: Any) -> ZooModel:
    published = more.pop("published", {})
    batch = more.pop("batch", source_and_target())
    return ZooModel(name, "encoder-decoder", class_name, tiny, published, size_name, batch, **more)


ENCODERS = [
    _encoder("BERT", "BertForMaskedLM", _BERT, "bert-base"),
    _encoder(
        "RoBERTa",
        "RobertaForMaskedLM",
        {**_BERT, "max_position_embeddings": 66},
        "roberta-base",
        published={"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1},
    ),
    _encoder(
        "XLM-RoBERTa",
        "XLMRobertaForSequenceClassification",
        {**_BERT, "max_position_embeddings": 66},
        "xlm-roberta-base",
        published={"vocab_size": 250002, "max_position_embeddings": 514, "type_vocab_size": 1},
        batch=classified_tokens(),
    ),
    _encoder(
        "DistilBERT",
        "DistilBertForMaskedLM",
        {"vocab_size": 128, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 64},
        "distilbert-base",
    ),
    _encoder(
        "ALBERT",
        "AlbertForMaskedLM",
        {**_BERT, "embedding_size": 16},
        "albert-xxlarge",
        note="one layer's weights for all layers",
    ),
    _encoder("ELECTRA", "ElectraForPreTraining", {**_BERT, "embedding_size": 16}, "electra-small", batch=_electra_pair),
    _encoder(
        "DeBERTa",
        "DebertaForMaskedLM",
        {**_BERT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 16},
        "deberta-base",
        published={
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "type_vocab_size": 0,
            "position_biased_input": False,
        },
    ),
    _encoder(
        "DeBERTa-v2",
        "DebertaV2ForMaskedLM",
        {**_BERT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8},
        "deberta-v3-base",
        published={
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 256,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "position_biased_input": False,
            "type_vocab_size": 0,
        },
    ),
    _encoder(
        "MPNet",
        "MPNetForMaskedLM",
        {**_BERT, "max_position_embeddings": 66},
        "mpnet-base",
        published={"max_position_embeddings": 514},
    ),
    _encoder(
        "ModernBERT",
        "ModernBertForMaskedLM",
        {
            **_BERT,
            "pad_token_id": 0,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "local_attention": 8,
        },
        "modernbert-base",
        note="sliding window in two of three layers",
    ),
    _encoder(
        "Longformer",
        "LongformerForMaskedLM",
        {**_BERT, "attention_window": 8, "max_position_embeddings": 66},
        "longformer-base-4096",
        published={"max_position_embeddings": 4098, "vocab_size": 50265, "type_vocab_size": 1},
        batch=_with_token_types,
        note="sliding window in chunks",
        asks_values=True,
    ),
    _encoder(
        "BigBird",
        "BigBirdForMaskedLM",
        {**_BERT, "attention_type": "original_full"},
        "bigbird-roberta-base",
        published={"attention_type": "original_full"},
    ),
    _encoder(
        "FNet",
        "FNetForMaskedLM",
        {**_BERT, "tpu_short_seq_length": 16},
        "fnet-base",
        note="Fourier transforms in place of attention",
    ),
    _encoder(
        "Funnel",
        "FunnelForMaskedLM",
        {
            "vocab_size": 128,
            "block_sizes": [1, 1],
            "num_decoder_layers": 1,
            "d_model": 32,
            "n_head": 4,
            "d_head": 8,
            "d_inner": 64,
        },
        "funnel-transformer-small",
    ),
    _encoder(
        "MobileBERT",
        "MobileBertForMaskedLM",
        {**_BERT, "embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16},
        "mobilebert-uncased",
    ),
    _encoder(
        "RoFormer",
        "RoFormerForMaskedLM",
        {**_BERT, "embedding_size": 32},
        "roformer-chinese-base",
        note="rotary positions",
    ),
    _encoder(
        "ConvBERT",
        "ConvBertForMaskedLM",
        {**_BERT, "embedding_size": 32, "head_ratio": 2, "conv_kernel_size": 3},
        "convbert-base",
        note="dynamic convolutions beside attention",
    ),
    _encoder(
        "SqueezeBERT",
        "SqueezeBertForMaskedLM",
        {**_BERT, "embedding_size": 32},
        "squeezebert-uncased",
        note="grouped convolutions in place of linear layers",
    ),
    _encoder(
        "XLNet",
        "XLNetLMHeadModel",
        {"vocab_size": 128, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64},
        "xlnet-large",
    ),
    _encoder(
        "Perceiver",
        "PerceiverForMaskedLM",
        {
            "vocab_size": 64,
            "d_model": 16,
            "d_latents": 32,
            "num_latents": 8,
            "num_self_attends_per_block": 2,
            "num_self_attention_heads": 4,
            "num_cross_attention_heads": 4,
            "qk_channels": 16,
            "v_channels": 32,
            "max_position_embeddings": 16,
        },
        "perceiver-language",
        batch=_perceived,
        published={"qk_channels": 256, "v_channels": 1280},
        note="cross-attention into latents",
    ),
]

PAIRS = [
    _pair("T5", "T5ForConditionalGeneration", _T5, "t5-small", published=_STARTED),
    _pair(
        "UMT5",
        "UMT5ForConditionalGeneration",
        _T5,
        "umt5-small",
        published={"vocab_size": 256384, **_STARTED},
        note="input and output embeddings tied, as transformers 5 has them",
    ),
    _pair("BART", "BartForConditionalGeneration", _BART, "bart-large"),
    _pair("mBART", "MBartForConditionalGeneration", _BART, "mbart-large-cc25", published={"vocab_size": 250027}),
    _pair(
        "Pegasus",
        "PegasusForConditionalGeneration",
        _BART,
        "pegasus-large",
        published={"vocab_size": 96103, "encoder_layers": 16, "decoder_layers": 16},
    ),
    _pair(
        "Marian",
        "MarianMTModel",
        {**_BART, "pad_token_id": 0, "decoder_start_token_id": 0},
        "opus-mt-en-de",
        published={
            "vocab_size": 58101,
            "d_model": 512,
            "encoder_layers": 6,
            "decoder_layers": 6,
            "encoder_ffn_dim": 2048,
            "decoder_ffn_dim": 2048,
            "encoder_attention_heads": 8,
            "decoder_attention_heads": 8,
            "max_position_embeddings": 512,
            "pad_token_id": 58100,
            "decoder_start_token_id": 58100,
            "eos_token_id": 0,
        },
    ),
    _pair(
        "M2M-100",
        "M2M100ForConditionalGeneration",
        {**_BART, **_ALL_LAYERS},
        "m2m100-418m",
        published=_ALL_LAYERS,
        note="without LayerDrop, which draws the layers it skips",
    ),
    _pair(
        "LED",
        "LEDForConditionalGeneration",
        {k: v for k, v in _BART.items() if k != "max_position_embeddings"}
        | {"attention_window": 8, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64},
        "led-base-16384",
        published={
            "d_model": 768,
            "encoder_layers": 6,
            "decoder_layers": 6,
            "encoder_ffn_dim": 3072,
            "decoder_ffn_dim": 3072,
            "encoder_attention_heads": 12,
            "decoder_attention_heads": 12,
            "attention_window": 1024,
        },
        note="sliding window in chunks",
        asks_values=True,
    ),
    _pair(
        "ProphetNet",
        "ProphetNetForConditionalGeneration",
        {
            "vocab_size": 128,
            "hidden_size": 32,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "num_encoder_attention_heads": 4,
            "num_decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "max_position_embeddings": 64,
        },
        "prophetnet-large",
        batch=source_and_target(source=256, target=256),
        asks_values=True,
    ),
]
