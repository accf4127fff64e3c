# mypy: disable-error-code="misc,import-not-found,no-untyped-call,no-any-return,arg-type"
"""Programs with Liger's Triton kernels (`pip install --no-deps liger-kernel`).

They run uncompiled, so what is compared is Liger's own buffers and launches.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from accuracy.compiled_models import Step, adamw, ids, training

MODELS: dict[str, Callable[[str], Step]] = {}


def program(build: Callable[[str], Step]) -> Callable[[str], Step]:
    MODELS[build.__name__] = build
    return build


@program
def liger_norms(device: str) -> Step:
    from liger_kernel.transformers import LigerLayerNorm, LigerRMSNorm

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(
                norm(2048) for norm in (LigerRMSNorm, LigerLayerNorm) for _ in range(3)
            )

        def forward(self, x: Tensor) -> Tensor:
            for norm in self.norms:
                x = norm(x)
            return x.float().mean()

    model = Net().to(device, torch.bfloat16)
    x = torch.rand(8, 1024, 2048, device=device, dtype=torch.bfloat16, requires_grad=True)
    return training(model, adamw(model), x)


@program
def liger_mlp(device: str) -> Step:
    from types import SimpleNamespace

    from liger_kernel.transformers import LigerGEGLUMLP, LigerSwiGLUMLP

    def sizes(act: str) -> SimpleNamespace:
        return SimpleNamespace(hidden_size=1024, intermediate_size=4096, hidden_act=act)

    layers = [LigerSwiGLUMLP(sizes("silu")), LigerGEGLUMLP(sizes("gelu_pytorch_tanh"))]
    model = nn.Sequential(*layers).to(device, torch.bfloat16)
    optimizer = adamw(model)
    x = torch.rand(4, 2048, 1024, device=device, dtype=torch.bfloat16, requires_grad=True)

    def step() -> None:
        model(x).float().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


@program
def liger_cross_entropy(device: str) -> Step:
    from liger_kernel.transformers import LigerCrossEntropyLoss

    head = nn.Linear(1024, 32000, bias=False).to(device, torch.bfloat16)
    loss, optimizer = LigerCrossEntropyLoss(), adamw(head)
    x = torch.rand(8192, 1024, device=device, dtype=torch.bfloat16)
    targets = ids(device, 32000, 8192)

    def step() -> None:
        loss(head(x), targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


@program
def liger_fused_linear_cross_entropy(device: str) -> Step:
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    head = nn.Linear(2048, 128256, bias=False).to(device, torch.bfloat16)
    loss, optimizer = LigerFusedLinearCrossEntropyLoss(), adamw(head)
    x = torch.rand(4096, 2048, device=device, dtype=torch.bfloat16, requires_grad=True)
    targets = ids(device, 128256, 4096)

    def step() -> None:
        loss(head.weight, x, targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


@program
def liger_llama(device: str) -> Step:
    """All of Liger's kernels in one of Hugging Face's models."""
    import transformers
    from liger_kernel.transformers import apply_liger_kernel_to_llama

    apply_liger_kernel_to_llama()
    config = transformers.LlamaConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=6,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=32000,
    )
    model = transformers.LlamaForCausalLM(config).to(device, torch.bfloat16).train()
    optimizer, tokens = adamw(model), ids(device, 32000, 4, 1024)

    def step() -> None:
        model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step
