# mypy: disable-error-code="misc,call-arg,no-untyped-call"
"""FSDP2 training steps that were predicted before they were measured.

Each is rank 0 of a job whose other ranks are not there: on torch's fake process group a collective
allocates what it always does and moves nothing, so one GPU can run any of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

from accuracy.models import Experts, Step, hugging_face, tokens, training

MODELS: dict[str, Callable[[str], Step]] = {}
BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def model(build: Callable[[str], Step]) -> Callable[[str], Step]:
    MODELS[build.__name__] = build
    return build


def job(device: str, *shape: int) -> DeviceMesh:
    """A mesh of ranks to shard over; with two dimensions, the first has copies of the second."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=math.prod(shape), store=FakeStore())
    return init_device_mesh(device, shape, mesh_dim_names=("copies", "shards")[-len(shape) :])


def shard(net: nn.Module, groups: Sequence[Any], **options: Any) -> None:
    """Groups inside out, and the rest of the model as the last one."""
    for group in (*groups, net):
        fully_shard(group, **options)


@model
def fsdp8_gpt2_kept_unsharded(device: str) -> Step:
    """Gradients are reduced in bf16; parameters stay gathered between forward and backward."""
    from transformers import GPT2Config

    mesh = job(device, 8)
    config = GPT2Config(n_embd=1024, n_layer=24, n_head=16, use_cache=False)
    with torch.device(device):
        net: Any = hugging_face("GPT2LMHeadModel", config)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    shard(net, net.transformer.h, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    batch = tokens(50257, 4, 512, device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    return training(net, optimizer, lambda: net(**batch).loss)


@model
def hsdp2x4_llama_checkpointed(device: str) -> Step:
    """Two copies of four shards, all in fp32, layers recomputed in backward."""
    from transformers import LlamaConfig

    mesh = job(device, 2, 4)
    config = LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=16, num_attention_heads=16,
        num_key_value_heads=4, vocab_size=32000, max_position_embeddings=1024, use_cache=False,
    )  # fmt: skip
    with torch.device(device):
        net: Any = hugging_face("LlamaForCausalLM", config)
    net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    shard(net, net.model.layers, mesh=mesh)
    batch = tokens(32000, 4, 1024, device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    return training(net, optimizer, lambda: net(**batch).loss)


@model
def fsdp7_bert_uneven(device: str) -> Step:
    """Seven ranks divide none of the sizes; of a table of three rows the last four have nothing."""
    from transformers import BertConfig

    mesh = job(device, 7)
    config = BertConfig(
        vocab_size=30011, hidden_size=720, num_hidden_layers=14, num_attention_heads=9,
        intermediate_size=2900, type_vocab_size=3, max_position_embeddings=330,
    )  # fmt: skip
    with torch.device(device):
        net: Any = hugging_face("BertForMaskedLM", config)
    shard(net, net.bert.encoder.layer, mesh=mesh, mp_policy=BF16)
    batch = tokens(30011, 24, 320, device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return training(net, optimizer, lambda: net(**batch).loss)


@model
def fsdp8_qwen_resharded_to_4(device: str) -> Step:
    """After forward each rank keeps a quarter, not an eighth; gradients are clipped."""
    from transformers import Qwen3Config

    mesh = job(device, 8)
    config = Qwen3Config(
        vocab_size=48000, hidden_size=1152, intermediate_size=3456, num_hidden_layers=14,
        num_attention_heads=18, num_key_value_heads=6, head_dim=64, use_cache=False,
        tie_word_embeddings=False,
    )  # fmt: skip
    with torch.device(device):
        net: Any = hugging_face("Qwen3ForCausalLM", config)
    shard(net, net.model.layers, mesh=mesh, mp_policy=BF16, reshard_after_forward=4)
    batch = tokens(48000, 3, 1024, device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    return training(net, optimizer, lambda: net(**batch).loss, clip=1.0)


class SparseModel(nn.Module):
    def __init__(self, words: int, width: int, experts: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Experts(width, experts) for _ in range(depth))
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for norm, block in zip(self.norms, self.blocks, strict=True):
            x = x + block(norm(x))
        out: Tensor = self.head(x)
        return out


@model
def fsdp4_experts_accumulated(device: str) -> Step:
    """Groups inside groups; the first of two batches leaves its gradients unreduced."""
    mesh = job(device, 4)
    with torch.device(device):
        net: Any = SparseModel(words=24000, width=768, experts=6, depth=6)
        batches = torch.randint(0, 24000, (2, 6, 1024)).unbind()
    groups = [group for block in net.blocks for group in (*block.experts, block)]
    shard(net, groups, mesh=mesh, mp_policy=BF16)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        for ids in batches:
            net.set_requires_gradient_sync(ids is batches[-1])
            F.cross_entropy(net(ids).flatten(0, 1), ids.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


class VisionModel(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.place = nn.Parameter(torch.zeros(1, 196, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, width // 64, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.place
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.head(self.norm(x).mean(1))
        return out


@model
def fsdp16_vit_pairs_prefetched(device: str) -> Step:
    """Two layers to a group; each gathers the next two groups ahead, forward and backward."""
    mesh = job(device, 16)
    with torch.device(device):
        net: Any = VisionModel(width=1024, depth=20)
        x, y = torch.rand(24, 3, 224, 224), torch.randint(0, 1000, (24,))
    pairs = [list(net.layers[i : i + 2]) for i in range(0, len(net.layers), 2)]
    shard(net, [*pairs, [net.norm, net.head]], mesh=mesh, mp_policy=BF16)
    firsts = [pair[0] for pair in pairs]
    for i, first in enumerate(firsts):
        first.set_modules_to_forward_prefetch(firsts[i + 1 : i + 3])
        first.set_modules_to_backward_prefetch(firsts[max(i - 2, 0) : i][::-1])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    return training(net, optimizer, lambda: F.cross_entropy(net(x).float(), y))


@model
def fsdp8_t5_offloaded(device: str) -> Step:
    """Shards, their gradients and the optimizer are in pinned memory of the CPU."""
    from transformers import T5Config

    mesh = job(device, 8)
    config = T5Config(
        d_model=768, d_kv=64, d_ff=3072, num_layers=10, num_heads=12,
        decoder_start_token_id=0, use_cache=False,
    )  # fmt: skip
    with torch.device(device):
        net: Any = hugging_face("T5ForConditionalGeneration", config)
    groups = [*net.encoder.block, *net.decoder.block]
    shard(net, groups, mesh=mesh, mp_policy=BF16, offload_policy=CPUOffloadPolicy())
    batch = tokens(32128, 8, 256, device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    return training(net, optimizer, lambda: net(**batch).loss)
