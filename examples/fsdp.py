"""Trains a Llama-3-shaped model with FSDP2; every choice that changes memory is an argument.

peakline estimate examples/fsdp.py --world-size 8 -- --size 8b --recompute alternate
"""

from __future__ import annotations

import argparse
import functools

import torch
import torch.distributed as dist
from llama import SHAPES, Llama
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrappers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SHAPES, default="8b")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--wrap", choices=["layers", "parts", "model"], default="layers")
    parser.add_argument("--replicate", type=int, default=1, help="HSDP: groups that are copies")
    parser.add_argument("--keep", action="store_true", help="no resharding after forward")
    parser.add_argument("--reshard-to", type=int, help="resharding to so many ranks")
    parser.add_argument("--param-dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--reduce-dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--offload", action="store_true", help="shards and optimizer on the CPU")
    parser.add_argument(
        "--recompute", choices=["no", "all", "alternate", "selective", "mixed"], default="no"
    )
    return parser.parse_args()


def keep_products(context: object, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:
    """Matrix products are kept, the rest is computed again."""
    kept = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def recompute(model: Llama, policy: str) -> None:
    selective = functools.partial(create_selective_checkpoint_contexts, keep_products)
    for i, layer in enumerate(model.layers):
        if policy == "no" or (policy == "alternate" and i % 2):
            continue
        chosen = policy == "selective" or (policy == "mixed" and i % 2)
        wrap = wrappers.checkpoint_wrapper
        model.layers[i] = wrap(layer, context_fn=selective) if chosen else wrap(layer)


def shard(model: Llama, args: argparse.Namespace) -> None:
    ranks = dist.get_world_size()
    if args.replicate > 1:
        shape = (args.replicate, ranks // args.replicate)
        mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cuda", (ranks,))
    wrap = functools.partial(
        fully_shard,
        mesh=mesh,
        mp_policy=MixedPrecisionPolicy(DTYPES[args.param_dtype], DTYPES[args.reduce_dtype]),
        reshard_after_forward=args.reshard_to or not args.keep,
        **({"offload_policy": CPUOffloadPolicy()} if args.offload else {}),
    )
    if args.wrap != "model":
        for layer in model.layers:
            if args.wrap == "parts":
                wrap(layer.get_submodule("attention"))
                wrap(layer.get_submodule("feed_forward"))
            wrap(layer)
    wrap(model)


def main() -> None:
    args = arguments()
    dist.init_process_group("nccl")
    with torch.device("cuda"):
        model = Llama(SHAPES[args.size], args.length, False)
    for name in ("cos", "sin"):  # FSDP casts parameters and inputs, not buffers
        setattr(model, name, getattr(model, name).to(DTYPES[args.param_dtype]))
    recompute(model, args.recompute)
    shard(model, args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(args.steps):
        tokens = torch.randint(
            0, SHAPES[args.size].vocabulary, (args.batch, args.length), device="cuda"
        )
        logits = model(tokens)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step + 1}: loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
