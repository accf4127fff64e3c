"""Trains one of four known models, as any script does: what `tools/plan_check.py` plans and runs.

    peakline plan tools/accuracy/plan_training.py --memory 20GiB -- --model llama-1b -o P.json
    python tools/accuracy/plan_training.py --model llama-1b --plan P.json

GPT-2 has dropout and computes in 32 bits; ViT-large computes in bfloat16 by autocast; the Llamas
are bfloat16 throughout. The optimizer is AdamW, fused, so that plans differ in recomputation alone.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    build: Callable[[], Any]
    batch: Callable[[str], Batch]  # on a device
    narrow: bool = False  # bfloat16 by autocast


def gpt2(layers: int = 12, width: int = 768) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    heads = width // 64
    config = GPT2Config(n_layer=layers, n_embd=width, n_head=heads, use_cache=False)
    return GPT2LMHeadModel(config)


def llama(hidden: int, inner: int, layers: int, length: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=length,
        rope_theta=500000.0,
        use_cache=False,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        return LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)


def vit() -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        num_labels=1000,
    )
    return ViTForImageClassification(config)


def tokens(vocabulary: int, batch: int, length: int) -> Callable[[str], Batch]:
    def make(device: str) -> Batch:
        ids = torch.randint(0, vocabulary, (batch, length), device=device)
        return {"input_ids": ids, "labels": ids.clone()}

    return make


def pictures(batch: int) -> Callable[[str], Batch]:
    def make(device: str) -> Batch:
        labels = torch.randint(0, 1000, (batch,), device=device)
        return {"pixel_values": torch.rand(batch, 3, 224, 224, device=device), "labels": labels}

    return make


CASES = {
    "gpt2": Case(gpt2, tokens(50257, 16, 1024)),
    "llama-1b": Case(lambda: llama(2048, 8192, 16, 2048), tokens(128256, 4, 2048)),
    "vit-large": Case(vit, pictures(128), narrow=True),
    "llama-8b": Case(lambda: llama(4096, 14336, 32, 8192), tokens(128256, 2, 8192)),
    "tiny": Case(lambda: gpt2(2, 64), tokens(50257, 2, 32)),  # for a CPU
}


def train(
    case: Case,
    steps: int,
    after_step: Callable[[int, float], None],
    change: Callable[[Any], Any] = lambda model: model,
    device: str = "cuda",
) -> None:
    torch.manual_seed(1)
    with torch.device(device):
        model = change(case.build().train())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batch = case.batch(device)
    for step in range(steps):
        with torch.autocast(device, torch.bfloat16) if case.narrow else contextlib.nullcontext():
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        after_step(step, loss.item())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=CASES, required=True)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--plan", metavar="FILE", help="what `peakline plan -o` wrote")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()

    def planned(model: Any) -> Any:
        if args.plan is None:
            return model
        import peakline

        return peakline.checkpoint(model, args.plan)

    def report(step: int, loss: float) -> None:
        print(f"step {step + 1}: loss {loss:.4f}", flush=True)

    train(CASES[args.model], args.steps, report, planned, args.device)


if __name__ == "__main__":
    main()
