"""A second round of `zoo_models`: sixteen other architectures, and generation of three others.

Predicted, and the predictions committed, before any of them was measured.
"""

from __future__ import annotations

from collections.abc import Callable

from accuracy.models import Step
from accuracy.zoo_models import CACHES, ENCODER, VISION, WIDE, Trained, generating, training

AUDIO = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "layerdrop": 0.0,  # which layers are left out is chance
    "apply_spec_augment": False,  # as is what is masked
}
EXPERTS = {**WIDE, "moe_intermediate_size": 704, "num_experts_per_tok": 2, "head_dim": 64}
GPT = {
    "n_embd": 1024,
    "n_layer": 8,
    "n_head": 16,
    "n_inner": 4096,
    "vocab_size": 32000,
    "n_positions": 2048,
}
T5 = {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 8, "num_heads": 12}

TRAINED: dict[str, Trained] = {
    "granite_train": ("granite", WIDE, "CausalLM", 4, 1024, True),
    "cohere_train": ("cohere", WIDE, "CausalLM", 4, 1024, True),
    "stablelm_train": ("stablelm", WIDE, "CausalLM", 4, 1024, False),
    "smollm3_train": ("smollm3", WIDE, "CausalLM", 4, 1024, True),
    "gptj_train": ("gptj", {**GPT, "rotary_dim": 32}, "CausalLM", 4, 1024, True),
    "gpt_bigcode_train": ("gpt_bigcode", GPT, "CausalLM", 4, 1024, True),
    "falcon_train": ("falcon", ENCODER, "CausalLM", 4, 1024, False),
    "qwen3_moe_train": ("qwen3_moe", {**EXPERTS, "num_experts": 8}, "CausalLM", 4, 1024, False),
    "roberta_train": (
        "roberta",
        {**ENCODER, "max_position_embeddings": 514},
        "SequenceClassification",
        16,
        512,
        True,
    ),
    "distilbert_train": (
        "distilbert",
        {"dim": 768, "hidden_dim": 3072, "n_layers": 6, "n_heads": 12, "vocab_size": 30522},
        "MaskedLM",
        16,
        512,
        False,
    ),
    "modernbert_train": ("modernbert", ENCODER, "MaskedLM", 8, 1024, True),
    "deberta_v2_train": ("deberta-v2", ENCODER, "MaskedLM", 8, 512, True),
    "mt5_train": ("mt5", {**T5, "vocab_size": 32128}, "Seq2SeqLM", 8, 512, True),
    "swin_train": ("swin", {"num_labels": 1000}, "ImageClassification", 64, 0, True),
    "ijepa_train": ("ijepa", VISION, "ImageClassification", 64, 0, False),
    "wav2vec2_train": ("wav2vec2", AUDIO, "AudioClassification", 8, 80000, True),
}
GENERATED = {
    "gemma2": ("gemma2", {**WIDE, "head_dim": 64, "sliding_window": 512}),  # every other layer
    "granite": ("granite", WIDE),
    "smollm3": ("smollm3", WIDE),
}

MODELS: dict[str, Callable[[str], Step]] = {
    name: training(trained) for name, trained in TRAINED.items()
}
for _name, (_kind, _settings) in GENERATED.items():
    for _cache in CACHES:
        MODELS[f"{_name}_generate_{_cache}"] = generating(_kind, _settings, _cache)
