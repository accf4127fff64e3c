"""Generates from a Llama-shaped model with random weights: transformers, no downloads.

peakline estimate examples/generate.py --curve batch-size=1,2,4,8 --curve length=1024..8192
peakline kv examples/generate.py --length 8192
"""

from __future__ import annotations

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SHAPES = {
    "tiny": (256, 688, 2, 8, 2, 1024),  # for a CPU
    "1b": (2048, 8192, 16, 32, 8, 128256),
    "8b": (4096, 14336, 32, 32, 8, 128256),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SHAPES, default="1b")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--length", type=int, default=1024, help="tokens of the prompt")
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--cache", choices=["dynamic", "static", "offloaded"], default="dynamic")
    args = parser.parse_args()

    hidden, inner, layers, heads, kv_heads, vocabulary = SHAPES[args.size]
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=vocabulary,
        max_position_embeddings=args.length + args.new_tokens,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16).to("cuda").eval()  # built on the CPU
    prompt = torch.randint(0, vocabulary, (args.batch_size, args.length)).to("cuda")
    with torch.inference_mode():
        tokens = model.generate(
            prompt,
            max_new_tokens=args.new_tokens,
            min_new_tokens=args.new_tokens,
            num_beams=args.beams,
            do_sample=False,
            cache_implementation=None if args.cache == "dynamic" else args.cache,
        )
    print(f"{tokens.shape[0]} sequences of {tokens.shape[1]} tokens")


if __name__ == "__main__":
    main()
