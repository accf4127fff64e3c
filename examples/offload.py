"""Trains a model whose optimizer's state, and saved activations, lie on the host.

peakline estimate examples/offload.py --host-memory 64GiB -- --size 8b
"""

from __future__ import annotations

import argparse

import torch
from llama import SHAPES, Llama
from torch.nn import functional as F


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SHAPES, default="8b")
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()

    torch.set_default_dtype(torch.bfloat16)
    shape = SHAPES[args.size]
    master = Llama(shape, args.length, False)  # on the CPU, with the optimizer's state
    model = Llama(shape, args.length, False).to("cuda")
    optimizer = torch.optim.AdamW(master.parameters(), lr=1e-4)
    for step in range(args.steps):
        tokens = torch.randint(0, shape.vocabulary, (1, args.length)).to("cuda")
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            logits = model(tokens)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        for host, device in zip(master.parameters(), model.parameters(), strict=True):
            assert device.grad is not None
            host.grad, device.grad = device.grad.to("cpu"), None
        optimizer.step()
        optimizer.zero_grad()
        model.load_state_dict(master.state_dict())
        print(f"step {step + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
