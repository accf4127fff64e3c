"""Small versions of real kinds of training steps run three steps on a virtual GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import peakline

Step = Callable[[], None]


def training(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Any]) -> Step:
    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def transformers() -> Any:
    return pytest.importorskip("transformers", reason="transformers is not installed")


def language_model(name: str, config: Any, optimizer: str, autocast: Any = None) -> Step:
    library = transformers()
    config._attn_implementation = "sdpa"
    with torch.device("cuda"):
        model = getattr(library, name)(config).train()
        tokens = torch.randint(0, config.vocab_size, (2, 32))
    kinds: dict[str, Any] = {
        "adamw": lambda: torch.optim.AdamW(model.parameters()),
        "sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    }

    def loss() -> Any:
        with torch.autocast("cuda", dtype=autocast, enabled=autocast is not None):
            return model(input_ids=tokens, labels=tokens.clone()).loss

    return training(model, kinds[optimizer](), loss)


def gpt2(autocast: Any = None) -> Step:
    config = transformers().GPT2Config(n_layer=2, n_embd=64, n_head=4, use_cache=False)
    return language_model("GPT2LMHeadModel", config, "adamw", autocast)


def llama_config() -> Any:
    return transformers().LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=512,
        use_cache=False,
    )


def llama_checkpointed() -> Step:
    library = transformers()
    config = llama_config()
    with torch.device("cuda"):
        model = library.LlamaForCausalLM(config).to(torch.bfloat16).train()
        tokens = torch.randint(0, 512, (2, 32))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters())
    return training(model, optimizer, lambda: model(input_ids=tokens, labels=tokens).loss)


def bert() -> Step:
    config = transformers().BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
    )
    return language_model("BertForMaskedLM", config, "sgd")


def images(name: str, config: Any) -> Step:
    library = transformers()
    with torch.device("cuda"):
        model = getattr(library, name)(config).train()
        pixels, labels = torch.rand(2, 3, 64, 64), torch.randint(0, 10, (2,))

    def loss() -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(pixel_values=pixels, labels=labels).loss

    return training(model, torch.optim.AdamW(model.parameters()), loss)


def vit() -> Step:
    config = transformers().ViTConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        image_size=64,
        num_labels=10,
    )
    return images("ViTForImageClassification", config)


def convnext() -> Step:
    config = transformers().ConvNextConfig(
        num_labels=10, depths=[1, 1, 2, 1], hidden_sizes=[16, 32, 64, 128], drop_path_rate=0.1
    )
    return images("ConvNextForImageClassification", config)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.lstm = nn.LSTM(32, 64, 3, batch_first=True, dropout=0.1)
        self.head = nn.Linear(64, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.lstm(self.embed(x))[0])
        return y


def lstm() -> Step:
    with torch.device("cuda"):
        model = Recurrent()
        tokens = torch.randint(0, 100, (4, 16))
    optimizer = torch.optim.Adam(model.parameters())
    loss = lambda: F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())  # noqa: E731
    return training(model, optimizer, loss)


def unet() -> Step:
    with torch.device("cuda"):
        down, up = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(19, 3, 3, padding=1)
        norm, x = nn.GroupNorm(4, 16), torch.rand(2, 3, 32, 32)
    model = nn.ModuleList([down, up, norm])

    def loss() -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            small = F.max_pool2d(F.silu(norm(down(x))), 2)
            y = up(torch.cat([F.interpolate(small, scale_factor=2), x], 1))
        return F.mse_loss(y.float(), x)

    return training(model, torch.optim.AdamW(model.parameters()), loss)


def fsdp() -> Step:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    library = transformers()
    dist.init_process_group("fake", rank=0, world_size=8)
    mesh = init_device_mesh("cuda", (8,))
    with torch.device("cuda"):
        model = library.LlamaForCausalLM(llama_config()).train()
        tokens = torch.randint(0, 512, (2, 32))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters())
    return training(model, optimizer, lambda: model(input_ids=tokens, labels=tokens).loss)


WORKLOADS: dict[str, Callable[[], Step]] = {
    "gpt2_fp32": gpt2,
    "gpt2_bf16_autocast": lambda: gpt2(torch.bfloat16),
    "llama_checkpointed": llama_checkpointed,
    "bert_sgd": bert,
    "vit": vit,
    "convnext": convnext,
    "lstm": lstm,
    "unet": unet,
    "fsdp": fsdp,
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_three_steps_run_and_the_last_two_are_alike(name: str) -> None:
    with peakline.virtual_gpu("h200") as run:
        step = WORKLOADS[name]()
        built = torch.cuda.max_memory_allocated()
        peaks = []
        for _ in range(3):
            torch.cuda.reset_peak_memory_stats()
            step()
            peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[0] > 0
    assert peaks[1] == peaks[2]
    assert run.peak("cuda:0").bytes == max(built, *peaks)
    assert [row.peak_allocated for row in run.steps] == [max(built, peaks[0]), *peaks[1:]]
