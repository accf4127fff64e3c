"""Small training programs of several ranks, run for real with gloo or on virtual GPUs.

    python jobs.py real|virtual WORLD KIND...

Each rank trains two steps and prints the bytes of the tensors that it keeps, by what they are; a
real one also those that peakline sees. The device is the CPU where there is no GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from job_combinations import (
    experts_and_fsdp,
    hybrid_and_context,
    pipeline_and_fsdp,
    tensor_and_fsdp,
)
from job_kinds import experts, pipeline, sequence_parallel, tensor_parallel, uneven
from job_parts import KEPT, size

import peakline

KINDS: dict[str, Callable[[torch.device], None]] = {
    "tp": tensor_parallel,
    "sp": sequence_parallel,
    "pp": pipeline,
    "ep": experts,
    "uneven": uneven,
    "tp+fsdp": tensor_and_fsdp,
    "pp+fsdp": pipeline_and_fsdp,
    "ep+fsdp": experts_and_fsdp,
    "hsdp+cp": hybrid_and_context,
}


class Saved:
    """Bytes that autograd keeps for backward, at the most."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def pack(self, tensor: torch.Tensor) -> tuple[int, torch.Tensor]:
        self.now += size(tensor)
        self.most = max(self.most, self.now)
        return size(tensor), tensor

    def unpack(self, packed: tuple[int, torch.Tensor]) -> torch.Tensor:
        return packed[1]


def work(kind: str) -> None:
    """One rank, as torchrun would start it."""
    torch.manual_seed(0)
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    saved = Saved()
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
        KINDS[kind](device)
    KEPT["saved"] = saved.now
    dist.destroy_process_group()


@contextlib.contextmanager
def tracked() -> Iterator[None]:
    with peakline.track() as run:
        yield
    at_peak = run.peak("cpu").by_category
    for name in ("Parameter", "Optstate"):
        KEPT[f"tracked {name}"] = at_peak.get(name, 0)


def start(kind: str, rank: int, world: int, port: int, virtual: bool) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        with peakline.virtual_gpu("h200", devices=world) if virtual else tracked():
            work(kind)
        line = json.dumps({"kind": kind, "rank": rank, **KEPT}) + "\n"
        os.write(1, line.encode())  # in one piece, beside what other ranks write
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def main(kinds: list[str], world: int, virtual: bool) -> int:
    torch.set_num_threads(1)
    failed = 0
    for kind in kinds:
        port = free_port()
        ranks = [start(kind, rank, world, port, virtual) for rank in range(world)]
        failed += sum(os.waitpid(pid, 0)[1] != 0 for pid in ranks)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[3:], int(sys.argv[2]), sys.argv[1] == "virtual"))
