"""A virtual GPU on a machine with a real one, and a torch with CUDA: it stays untouched.

Expected peaks are those that a CPU-only torch computed (tests/data/virtual_gpu_peaks.json, written
by `python tests/gpu/test_virtual_gpu.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "virtual_gpu_peaks.json"
MIB = 2**20


def compute_peaks() -> dict[str, list[int]]:
    """Peaks of three steps of a few models: allocated and reserved."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    import peakline

    def mlp() -> tuple[nn.Module, Any]:
        model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4))).cuda()
        x = torch.zeros(64, 1024, device="cuda")
        return model, lambda: model(x).square().mean()

    def convolutions() -> tuple[nn.Module, Any]:
        layers = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)]
        model = nn.Sequential(*layers).cuda()
        x = torch.zeros(4, 3, 64, 64, device="cuda")
        return model, lambda: model(x).square().mean()

    def embedding() -> tuple[nn.Module, Any]:
        model = nn.Sequential(nn.Embedding(5000, 256), nn.Linear(256, 5000)).cuda()
        tokens = torch.randint(0, 5000, (4, 128), device="cuda")
        return model, lambda: F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    peaks: dict[str, list[int]] = {}
    for build in (mlp, convolutions, embedding):
        with peakline.virtual_gpu("h200"):
            model, loss = build()
            optimizer = torch.optim.AdamW(model.parameters())
            for _ in range(3):
                loss().backward()
                optimizer.step()
                optimizer.zero_grad()
            peaks[build.__name__] = [
                torch.cuda.max_memory_allocated(),
                torch.cuda.max_memory_reserved(),
            ]
    return peaks


CHILD = """
import json, sys
sys.path.insert(0, {folder!r})
from test_virtual_gpu import compute_peaks, used_memory
before = used_memory()
peaks = compute_peaks()
print("RESULT " + json.dumps([peaks, used_memory() - before]), flush=True)
"""

REAL = """
import sys
sys.path.insert(0, {folder!r})
from test_virtual_gpu import used_memory
import torch
before = used_memory()
x = torch.zeros(1, device="cuda")
print("RESULT", used_memory() - before)
"""


def used_memory() -> int:
    """Bytes in use on all GPUs, as the driver says: process numbers differ in containers."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    listed = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    return sum(int(line) for line in listed.split()) * MIB


def child(code: str, **env: str) -> Any:
    code = code.format(folder=str(Path(__file__).parent))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr
    return json.loads(lines[-1].removeprefix("RESULT "))


def test_peaks_are_those_of_a_cpu_only_torch_and_the_gpu_stays_empty() -> None:
    # Other programs on the GPU come and go, so one quiet try of three is proof.
    tries = [child(CHILD) for _ in range(3)]
    assert all(peaks == json.loads(DATA.read_text())["peaks"] for peaks, _ in tries)
    assert min(abs(used) for _, used in tries) == 0
    assert child(REAL) > 100 * MIB  # so that the zero above says something


def test_the_real_gpu_works_after_a_virtual_one() -> None:
    code = """
import torch, peakline
with peakline.virtual_gpu("h200", memory="1GiB"):
    torch.nn.Linear(64, 64).cuda()(torch.zeros(4, 64, device="cuda")).sum().backward()
x = torch.arange(4.0, device="cuda", requires_grad=True)
y = (x * x).sum()
y.backward()
assert x.grad.tolist() == [0.0, 2.0, 4.0, 6.0]
assert torch.cuda.memory_allocated() > 0
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    z = x.detach() + 1
stream.synchronize()
assert z.tolist() == [1.0, 2.0, 3.0, 4.0]
with peakline.virtual_gpu("h200"):
    assert torch.cuda.memory_allocated() == 0
    torch.zeros(1024, device="cuda")
    assert torch.cuda.max_memory_allocated() == 4096
assert (x.detach() + 1).tolist() == [1.0, 2.0, 3.0, 4.0]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_hidden_gpu_changes_nothing() -> None:
    peaks, used = child(CHILD, CUDA_VISIBLE_DEVICES="")
    assert peaks == json.loads(DATA.read_text())["peaks"]
    assert used == 0


def write() -> None:
    import torch

    os.makedirs(DATA.parent, exist_ok=True)
    content = {"torch": torch.__version__, "peaks": compute_peaks()}
    DATA.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    write()
