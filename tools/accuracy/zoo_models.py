# mypy: disable-error-code="no-untyped-call,attr-defined,no-any-return"
"""Architectures that no rule was made with: a training step of fifteen, and generation of three
models with three kinds of caches, and of one with a quantised one. Needs transformers.

Predicted without a GPU before any of them was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from accuracy.models import Step

MODELS: dict[str, Callable[[str], Step]] = {}

WIDE = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ENCODER = {key: value for key, value in WIDE.items() if key != "num_key_value_heads"}
SEQ2SEQ = {
    "d_model": 768,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
    "vocab_size": 50265,
}
VISION = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_labels": 1000,
}

# (model type, settings, kind of head, sequences or pictures, tokens or samples, bfloat16 autocast)
Trained = tuple[str, dict[str, Any], str, int, int, bool]
TRAINED: dict[str, Trained] = {
    "qwen3_train": ("qwen3", {**WIDE, "head_dim": 64}, "CausalLM", 4, 1024, True),
    "gemma2_train": ("gemma2", {**WIDE, "head_dim": 64}, "CausalLM", 4, 1024, True),
    "phi3_train": ("phi3", WIDE, "CausalLM", 4, 1024, False),
    "olmo2_train": ("olmo2", WIDE, "CausalLM", 4, 1024, True),
    "starcoder2_train": ("starcoder2", WIDE, "CausalLM", 4, 1024, True),
    "gpt_neox_train": ("gpt_neox", ENCODER, "CausalLM", 4, 1024, False),
    "opt_train": (
        "opt",
        {**ENCODER, "ffn_dim": 4096, "word_embed_proj_dim": 1024},
        "CausalLM",
        4,
        1024,
        True,
    ),
    "bloom_train": (
        "bloom",
        {"hidden_size": 1024, "n_layer": 8, "n_head": 16, "vocab_size": 32000},
        "CausalLM",
        4,
        1024,
        True,
    ),
    "electra_train": ("electra", {**ENCODER, "embedding_size": 1024}, "MaskedLM", 16, 512, True),
    "albert_train": ("albert", {**ENCODER, "embedding_size": 128}, "MaskedLM", 16, 512, False),
    "mbart_train": ("mbart", SEQ2SEQ, "Seq2SeqLM", 8, 512, True),
    "pegasus_train": ("pegasus", SEQ2SEQ, "Seq2SeqLM", 8, 512, False),
    "deit_train": ("deit", VISION, "ImageClassification", 64, 0, True),
    "beit_train": ("beit", VISION, "ImageClassification", 64, 0, True),
    "dinov2_train": ("dinov2", VISION, "ImageClassification", 64, 0, True),
}
GENERATED = {
    "llama": ("llama", WIDE),
    "mistral": ("mistral", {**WIDE, "sliding_window": 512}),
    "qwen2": ("qwen2", WIDE),
}
CACHES = ("dynamic", "static", "offloaded")
QUANTISED = {  # keys and values in four bits, all but the last tokens; needs the package hqq
    "backend": "hqq",
    "nbits": 4,
    "axis_key": 1,
    "axis_value": 1,
    "q_group_size": 64,
    "residual_length": 128,
}


def _built(kind: str, settings: dict[str, Any], head: str, device: str, dtype: torch.dtype) -> Any:
    import transformers

    config = transformers.AutoConfig.for_model(kind, **settings)
    auto = getattr(transformers, f"AutoModelFor{head}")
    with torch.device(device):
        return auto.from_config(config, dtype=dtype)


def _batch(head: str, vocabulary: int, count: int, length: int, device: str) -> dict[str, Any]:
    if head == "ImageClassification":
        return {
            "pixel_values": torch.rand(count, 3, 224, 224, device=device),
            "labels": torch.zeros(count, dtype=torch.long, device=device),
        }
    if head == "AudioClassification":
        return {
            "input_values": torch.rand(count, length, device=device),
            "labels": torch.zeros(count, dtype=torch.long, device=device),
        }
    ids = torch.randint(0, vocabulary, (count, length), device=device)
    if head == "SequenceClassification":
        return {
            "input_ids": ids,
            "labels": torch.zeros(count, dtype=torch.long, device=device),
        }
    return {"input_ids": ids, "labels": ids.clone()}


def training(trained: Trained) -> Callable[[str], Step]:
    """A step of training with random data."""
    kind, settings, head, count, length, narrow = trained

    def build(device: str) -> Step:
        model = _built(kind, settings, head, device, torch.float32).train()
        model.config.use_cache = False
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        given = _batch(head, settings.get("vocab_size", 0), count, length, device)

        def step() -> None:
            with torch.autocast(device, torch.bfloat16, enabled=narrow):
                loss = model(**given).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return build


def generating(kind: str, settings: dict[str, Any], cache: str) -> Callable[[str], Step]:
    """Thirty-two tokens after eight prompts of 1024, with this kind of cache."""

    def build(device: str) -> Step:
        model = _built(kind, settings, "CausalLM", device, torch.bfloat16).eval()
        prompt = torch.randint(3, 32000, (8, 1024), device=device)

        def step() -> None:
            with torch.inference_mode():
                model.generate(
                    prompt,
                    max_new_tokens=32,
                    min_new_tokens=32,
                    do_sample=False,
                    cache_implementation=None if cache == "dynamic" else cache,
                    # A fresh one each time: generate takes "backend" out of it.
                    cache_config=dict(QUANTISED) if cache == "quantized" else None,
                    disable_compile=True,
                )

        return step

    return build


for _name, _trained in TRAINED.items():
    MODELS[_name] = training(_trained)
for _name, (_kind, _settings) in GENERATED.items():
    for _cache in CACHES:
        MODELS[f"{_name}_generate_{_cache}"] = generating(_kind, _settings, _cache)
MODELS["llama_generate_quantized"] = generating(*GENERATED["llama"], "quantized")
