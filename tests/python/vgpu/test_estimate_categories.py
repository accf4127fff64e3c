"""What memory is called, in programs that are not a plain training loop."""

from __future__ import annotations

import json
from pathlib import Path

from estimate_support import Answer, Estimate, write

MIB = 2**20


def test_weights_of_a_model_that_is_only_called_are_parameters_though_it_is_dropped_before_the_end(
    folder: Path, answer: Answer
) -> None:
    source = """
        import torch

        @torch.no_grad()
        def sample():
            layers = [torch.nn.Linear(1024, 1024) for _ in range(8)]
            model = torch.nn.Sequential(*layers).cuda().eval()
            x = torch.zeros(4096, 1024, device="cuda")
            for _ in range(4):
                x = model(x)
            return x.shape

        sample()
    """
    write(folder, "sample.py", source)
    found = answer("sample.py")["by_category"]
    assert found["Parameter"] == 8 * (1024 * 1024 + 1024) * 4
    assert found["Activation"] >= 16 * MIB  # what one layer hands to the next
    assert found.get("Temp", 0) < MIB


def test_forward_and_backward_inside_an_optimizers_closure_are_forward_and_backward(
    folder: Path, answer: Answer
) -> None:
    source = """
        import torch
        model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]).cuda()
        optimizer = torch.optim.AdamW(model.parameters())

        def closure():
            optimizer.zero_grad()
            loss = model(torch.zeros(8192, 512, device="cuda")).square().mean()
            loss.backward()
            return loss

        for _ in range(5):
            {step}
    """
    steps = {"inside": "optimizer.step(closure)", "outside": "closure(); optimizer.step()"}
    found = {}
    for name, step in steps.items():
        write(folder, "closure.py", source.format(step=step))
        found[name] = answer("closure.py")
    inside, outside = found["inside"], found["outside"]
    assert inside["peak"]["phase"] == outside["peak"]["phase"] != "optimizer"
    assert inside["peak_allocated"] == outside["peak_allocated"]
    for name in ("Activation", "Gradient", "Parameter", "Optstate"):
        assert inside["by_category"].get(name, 0) == outside["by_category"].get(name, 0), name


def test_buckets_of_ddp_are_no_optimizer_state(folder: Path, answer: Answer) -> None:
    source = """
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        dist.init_process_group("nccl")
        model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
        model = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # without any state
        for _ in range(5):
            model(torch.zeros(8, 1024, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    write(folder, "ddp.py", source)
    found = answer("ddp.py", "--world-size", "2", "--steps", "4")["by_category"]
    assert found.get("Optstate", 0) == 0
    assert found["Comm"] >= 32 * MIB


def test_what_an_unfinished_forward_holds_is_activations(folder: Path, estimate: Estimate) -> None:
    source = """
        import torch
        layers = [torch.nn.Linear(1024, 1024) for _ in range(4)]
        model = torch.nn.Sequential(*layers, torch.nn.Bilinear(1, 1, 1)).cuda()
        model(torch.zeros(8192, 1024, device="cuda"))  # its last layer refuses
    """
    write(folder, "unfinished.py", source)
    done = estimate("unfinished.py", "--json", "-")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["partial"] is True
    assert found["peak"]["phase"] == "forward"
    assert found["by_category"]["Activation"] == 4 * 32 * MIB
    assert found["by_category"].get("Temp", 0) == 0


def test_weights_from_which_a_sampler_draws_are_not_temporary(folder: Path, answer: Answer) -> None:
    source = """
        import torch
        from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler
        weights = torch.ones(4 * 2**20, device="cuda")
        model = torch.nn.Linear(256, 256).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sampler = WeightedRandomSampler(weights[:64], 64)
        for (x,) in DataLoader(TensorDataset(torch.zeros(64, 256)), 16, sampler=sampler):
            chosen = torch.multinomial(weights, 100, replacement=True)
            model(x.cuda()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    write(folder, "sampler.py", source)
    found = answer("sampler.py")["by_category"]
    assert found.get("Temp", 0) < MIB
    assert found["Other"] >= 16 * MIB
