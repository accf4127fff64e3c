"""Trains and runs small models of many architectures on a virtual GPU, and writes docs/zoo.md.

python tools/zoo.py [--only TYPE…] [--json FILE]     needs transformers; no GPU, no downloads

Each model runs in a fork of this process, so one that fails takes no other with it. With --only
the page stays as it is: all of its rows are of one pass, whose date and versions it names.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "zoo.md"
TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ENCODER = {key: value for key, value in TEXT.items() if key != "num_key_value_heads"}
EXPERTS = {**TEXT, "moe_intermediate_size": 32, "num_experts_per_tok": 2}
SEQ2SEQ = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "vocab_size": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
T5 = {
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 2,
    "num_heads": 4,
    "vocab_size": 512,
    "decoder_start_token_id": 0,
}
VISION = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}
AUDIO = {
    **ENCODER,
    "conv_dim": [32] * 7,
    "num_conv_pos_embeddings": 16,
    "num_feat_extract_layers": 7,
}
GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 512, "n_positions": 128}
ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

CAUSAL, MASKED = "CausalLM", "MaskedLM"
CLASSES, TOKENS = "SequenceClassification", "TokenClassification"
PICTURES, SEQ = "ImageClassification", "Seq2SeqLM"

# (model type, settings, heads that are tried)
ZOO: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("llama", TEXT, (CAUSAL, CLASSES, TOKENS)),
    ("mistral", {**TEXT, "sliding_window": 16}, (CAUSAL, CLASSES)),
    ("qwen2", TEXT, (CAUSAL, CLASSES)),
    ("qwen3", {**TEXT, "head_dim": 16}, (CAUSAL,)),
    ("gemma", {**TEXT, "head_dim": 16}, (CAUSAL,)),
    ("gemma2", {**TEXT, "head_dim": 16, "sliding_window": 16}, (CAUSAL,)),
    ("phi", TEXT, (CAUSAL,)),
    ("phi3", TEXT, (CAUSAL,)),
    ("olmo2", TEXT, (CAUSAL,)),
    ("granite", TEXT, (CAUSAL,)),
    ("cohere", TEXT, (CAUSAL,)),
    ("starcoder2", TEXT, (CAUSAL,)),
    ("stablelm", TEXT, (CAUSAL,)),
    ("smollm3", TEXT, (CAUSAL,)),
    ("mixtral", {**EXPERTS, "num_local_experts": 4}, (CAUSAL,)),
    ("qwen2_moe", {**EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 32}, (CAUSAL,)),
    ("qwen3_moe", {**EXPERTS, "num_experts": 4, "head_dim": 16}, (CAUSAL,)),
    ("gpt2", {**GPT, **ENDS}, (CAUSAL, CLASSES, TOKENS)),
    ("gpt_neox", ENCODER, (CAUSAL, CLASSES)),
    ("gpt_bigcode", {**GPT, **ENDS}, (CAUSAL,)),
    ("gptj", {**GPT, "rotary_dim": 8, **ENDS}, (CAUSAL,)),
    ("opt", {**ENCODER, "ffn_dim": 128, "word_embed_proj_dim": 64}, (CAUSAL,)),
    ("bloom", {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 512, **ENDS}, (CAUSAL,)),
    ("falcon", {**ENCODER, "new_decoder_architecture": False}, (CAUSAL,)),
    (
        "mamba",
        {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 512, "state_size": 8},
        (CAUSAL,),
    ),
    ("bert", ENCODER, (MASKED, CLASSES, TOKENS)),
    ("roberta", ENCODER, (MASKED, CLASSES)),
    ("electra", {**ENCODER, "embedding_size": 64}, (MASKED, CLASSES)),
    ("albert", {**ENCODER, "embedding_size": 32}, (MASKED,)),
    ("deberta-v2", {**ENCODER, "pooler_hidden_size": 64}, (MASKED, CLASSES)),
    (
        "distilbert",
        {"dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4, "vocab_size": 512},
        (MASKED,),
    ),
    ("modernbert", {**ENCODER, "cls_token_id": 1, "sep_token_id": 2}, (MASKED,)),
    ("xlm-roberta", ENCODER, (MASKED,)),
    ("t5", T5, (SEQ,)),
    ("mt5", T5, (SEQ,)),
    ("bart", SEQ2SEQ, (SEQ, CLASSES)),
    ("mbart", SEQ2SEQ, (SEQ,)),
    ("pegasus", SEQ2SEQ, (SEQ,)),
    ("vit", VISION, (PICTURES,)),
    ("deit", VISION, (PICTURES,)),
    ("beit", VISION, (PICTURES,)),
    ("dinov2", VISION, (PICTURES,)),
    (
        "swin",
        {
            "embed_dim": 32,
            "depths": [1, 1],
            "num_heads": [2, 4],
            "image_size": 32,
            "patch_size": 4,
            "window_size": 4,
        },
        (PICTURES,),
    ),
    (
        "convnext",
        {"hidden_sizes": [32, 64], "depths": [1, 1], "num_stages": 2, "image_size": 32},
        (PICTURES,),
    ),
    (
        "convnextv2",
        {"hidden_sizes": [32, 64], "depths": [1, 1], "num_stages": 2, "image_size": 32},
        (PICTURES,),
    ),
    ("resnet", {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]}, (PICTURES,)),
    ("mobilenet_v2", {"image_size": 64}, (PICTURES,)),
    (
        "regnet",
        {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "groups_width": 8},
        (PICTURES,),
    ),
    (
        "segformer",
        {"hidden_sizes": [16, 32, 32, 32], "num_attention_heads": [1, 2, 2, 2]},
        (PICTURES,),
    ),
    ("wav2vec2", AUDIO, ("CTC", CLASSES)),
    ("hubert", AUDIO, ("CTC",)),
    ("whisper", {**SEQ2SEQ, "max_target_positions": 64}, ("SpeechSeq2Seq",)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="model types; default: all")
    parser.add_argument("--json")
    args = parser.parse_args()
    # What the forks would import each for itself.
    import sympy  # noqa: F401
    import transformers  # noqa: F401

    unknown = set(args.only) - {kind for kind, _, _ in ZOO}
    if unknown:
        parser.error(f"not in the zoo: {', '.join(sorted(unknown))}")
    rows = []
    for kind, settings, heads in ZOO:
        if args.only and kind not in args.only:
            continue
        for head in heads:
            rows.append(_in_a_fork(kind, settings, head))
            print(rows[-1], file=sys.stderr, flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    if not args.only:
        PAGE.write_text(page(rows, _with_what()))


def _with_what() -> str:
    import torch
    import transformers

    today = datetime.date.today().isoformat()
    return f"{today}, torch {torch.__version__}, transformers {transformers.__version__}"


def _in_a_fork(kind: str, settings: dict[str, Any], head: str) -> dict[str, str]:
    ours, theirs = Pipe(duplex=False)
    process = os.fork()
    if process == 0:
        theirs.send(_run(kind, settings, head))
        os._exit(0)
    theirs.close()
    try:
        found: dict[str, str] = ours.recv()
    except EOFError:
        found = {"type": kind, "class": head, "trains": "crashed", "infers": "crashed"}
    os.waitpid(process, 0)
    return found


def _run(kind: str, settings: dict[str, Any], head: str) -> dict[str, str]:
    import torch

    import peakline
    from peakline._hf import models

    row = {"type": kind, "class": head, "trains": "", "infers": ""}
    with peakline.virtual_gpu("h200"):
        for what in ("trains", "infers"):
            try:
                model = _build(kind, settings, head)
                row["class"] = type(model).__name__
                given = models.inputs(
                    model, 2, 16 if model.main_input_name != "input_values" else 8000
                )
                if "input_ids" in given and model.config.eos_token_id is not None:
                    given["input_ids"][:, -1] = model.config.eos_token_id  # as a tokenizer ends it
                if what == "trains":
                    _train(model, {**given, **models.labels(model, given)})
                else:
                    with torch.inference_mode():
                        model.eval()(**given)
                row[what] = "yes"
            except BaseException as error:
                row[what] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:160]
    return row


def _build(kind: str, settings: dict[str, Any], head: str) -> Any:
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(kind, **settings)
    if kind == "deit":  # of which transformers has two classes, and asks which one is meant
        config.architectures = ["DeiTForImageClassification"]
    auto: Any = getattr(transformers, f"AutoModelFor{head}", None)
    if kind in ("wav2vec2", "hubert") and head == CLASSES:
        auto = transformers.AutoModelForAudioClassification
    with torch.device("cuda"):
        return auto.from_config(config).to("cuda")  # torch.Tensor(n) is the CPU's all the same


def _train(model: Any, given: dict[str, Any]) -> None:
    import torch

    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    results = model(**given)
    loss = results.loss if results.get("loss") is not None else results[0].float().mean()
    loss.backward()
    optimizer.step()


def page(rows: list[dict[str, str]], with_what: str) -> str:
    done = [row for row in rows if row["trains"] == row["infers"] == "yes"]
    kinds = {row["type"] for row in done}
    lines = [
        "# Models that were tried",
        "",
        f"{len(done)} model classes of {len(kinds)} architectures train a step and infer one.",
        "All of it happens on a virtual GPU: it shows which programs run, not how exact their",
        "peaks are ([accuracy](accuracy.md) does).",
        f"`tools/zoo.py` runs small ones of each, and writes this page ({with_what}).",
        "",
        "| Architecture | Class | Trains | Infers |",
        "|---|---|---|---|",
    ]
    lines += [f"| {r['type']} | {r['class']} | {r['trains']} | {r['infers']} |" for r in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
