"""Programs that keep a part of the model on the host: both sides are told."""

import importlib.util
from pathlib import Path

import pytest
from estimate_support import Answer, write

MIB = 1 << 20
LAYER = 64 * MIB  # 4096 x 4096 in float32
SHARDED = """
    import sys
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

    dist.init_process_group("nccl")
    offload = CPUOffloadPolicy() if sys.argv[1] == "offload" else OffloadPolicy()
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(4096, 4096, bias=False) for _ in range(8)))
    for layer in model:
        fully_shard(layer, offload_policy=offload)
    fully_shard(model, offload_policy=offload)
    model.to_empty(device="cpu" if sys.argv[1] == "offload" else "cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.zeros(64, 4096, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
# As accelerate's dispatch_model does it: a layer of the host has no weights of its own, and gets
# them on the GPU for as long as it runs.
DISPATCHED = """
    import torch
    from torch import nn

    kept = {}

    def arrive(layer, args):
        layer.weight = nn.Parameter(kept[layer].to("cuda"), requires_grad=False)

    def leave(layer, args, result):
        layer.weight = nn.Parameter(torch.empty_like(kept[layer], device="meta"), False)

    model = nn.Sequential(*(nn.Linear(4096, 4096, bias=False) for _ in range(8)))
    for number, layer in enumerate(model):
        if number < 2:
            layer.cuda()
            continue
        kept[layer] = layer.weight.data
        leave(layer, (), None)
        layer.register_forward_pre_hook(arrive)
        layer.register_forward_hook(leave)
    with torch.inference_mode():
        model(torch.zeros(1, 4096, device="cuda"))
"""
ACCELERATED = """
    import torch
    from accelerate import dispatch_model, infer_auto_device_map
    from torch import nn

    model = nn.Sequential(*(nn.Linear(4096, 4096, bias=False) for _ in range(8)))
    places = infer_auto_device_map(model, max_memory={0: "200MiB", "cpu": "10GiB"})
    assert sorted(map(str, places.values())) == ["0"] * 2 + ["cpu"] * 6, places
    model = dispatch_model(model, device_map=places)
    with torch.inference_mode():
        model(torch.zeros(1, 4096, device="cuda"))
"""


def test_shards_that_fsdp_keeps_on_the_host_are_told_there(folder: Path, answer: Answer) -> None:
    write(folder, "shards.py", SHARDED)
    jobs = ["shards.py", "--world-size", "8", "--"]
    offloaded, usual = answer(*jobs, "offload"), answer(*jobs, "keep")
    shards = 8 * LAYER // 8
    # Parameters and gradients are pinned; the optimizer's two states lie beside them, and three
    # temporaries of the parameter that is being stepped.
    assert offloaded["host_pinned_peak"] == 2 * shards
    assert offloaded["host_peak"] == pytest.approx(4 * shards + 3 * LAYER // 8, rel=0.01)
    assert usual["host_peak"] < MIB
    assert usual["by_category"]["Optstate"] == pytest.approx(2 * shards, rel=0.01)
    assert "Optstate" not in offloaded["by_category"]


@pytest.mark.parametrize(
    "source",
    [
        DISPATCHED,
        pytest.param(
            ACCELERATED,
            marks=pytest.mark.skipif(
                importlib.util.find_spec("accelerate") is None, reason="accelerate is missing"
            ),
        ),
    ],
    ids=["by hand", "accelerate"],
)
def test_layers_that_a_device_map_puts_on_the_host_visit_the_gpu(
    folder: Path, answer: Answer, source: str
) -> None:
    write(folder, "dispatches.py", source)
    found = answer("dispatches.py")
    assert found["host_peak"] == pytest.approx(8 * LAYER, rel=0.01)
    # Two live there, and one visits at a time.
    weights = sum(found["by_category"].values()) - found["by_category"].get("Workspace", 0)
    assert weights == pytest.approx(3 * LAYER, rel=0.02)
