"""`estimate`'s questions about the host: --host-memory, --real-host."""

import json
from pathlib import Path

import pytest
from estimate_support import Answer, Estimate, write

SOURCE = """
    import torch
    from torch import nn

    model = nn.Linear(16384, 16384, bias=False)  # 1 GiB
    print("known" if torch.ones(4096, 4096).mean().item() == 1.0 else "unknown")
    state = [torch.empty(4096, 4096, pin_memory=True) for _ in range(2)]
    model.cuda()
"""


@pytest.fixture(autouse=True)
def script(folder: Path) -> None:
    write(folder, "builds.py", SOURCE)


def test_the_host_s_peak_and_what_is_pinned_are_told(answer: Answer) -> None:
    found = answer("builds.py")
    assert found["fits"]
    assert 1.1 * 2**30 < found["host_peak"] < 1.3 * 2**30
    assert found["host_pinned_peak"] == 2 * 64 * 2**20
    assert found["host_memory_limit"] is None


def test_a_host_that_is_too_small_does_not_fit(estimate: Estimate) -> None:
    done = estimate("builds.py", "--host-memory", "512MiB")
    assert done.returncode == 3
    told = " ".join(done.stdout.split())
    assert "does not fit the host's 512.0 MiB" in told
    assert "fits, 13" in told, "the GPU has room all the same"
    assert "Would do" not in told
    enough = estimate("builds.py", "--host-memory", "2GiB")
    assert enough.returncode == 0
    assert "fits 2.000 GiB" in enough.stdout


def test_both_sides_are_told_apart(estimate: Estimate) -> None:
    done = estimate("builds.py", "--host-memory", "512MiB", "--json", "-")
    found = json.loads(done.stdout)
    assert (found["fits"], found["gpu_fits"], found["host_fits"]) == (False, True, False)
    assert not found["trains"]
