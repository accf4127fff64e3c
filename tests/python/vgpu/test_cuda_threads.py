"""Threads started inside a virtual GPU are on it, too."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

import peakline


def train(device: int = 0) -> int:
    torch.cuda.set_device(device)
    model = torch.nn.Linear(64, 64, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.zeros(4, 64, device="cuda")).sum().backward()
    optimizer.step()
    assert model.weight.grad is not None
    return model.weight.grad.get_device()


def test_a_thread_trains_on_the_virtual_gpu() -> None:
    found: list[int] = []
    with peakline.virtual_gpu("h200"):
        thread = threading.Thread(target=lambda: found.append(train()))
        thread.start()
        thread.join()
    assert found == [0]


def test_an_executors_threads_each_have_their_own_device() -> None:
    with peakline.virtual_gpu("h200", devices=4), ThreadPoolExecutor(4) as pool:
        assert list(pool.map(train, range(4))) == [0, 1, 2, 3]
        assert torch.cuda.current_device() == 0


def test_a_thread_from_before_the_block_is_virtual_inside_it() -> None:
    go, done = threading.Event(), threading.Event()
    found: list[int] = []

    def work() -> None:
        go.wait()
        try:
            found.append(train())
        finally:
            done.set()

    thread = threading.Thread(target=work)
    thread.start()
    with peakline.virtual_gpu("h200"):
        go.set()
        done.wait()
    thread.join()
    assert found == [0]
