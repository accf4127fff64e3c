"""Programs that start a job's processes, given to `peakline estimate` as people type them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from estimate_support import Answer, Estimate, write

RANK = """
    import os, sys
    import torch
    import torch.distributed as dist
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    print("env", *(os.environ[name] for name in names), *sys.argv[1:])
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    x = torch.zeros(1024, device="cuda")
    assert torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
"""
RUN = ["-m", "torch.distributed.run"]


@pytest.mark.parametrize(
    ("words", "env"),
    [
        ([*RUN, "--nproc-per-node", "8", "rank.py", "--lr", "1"], "env 0 0 8 8 127.0.0.1"),
        (["torchrun", "--standalone", "--nproc_per_node=4", "rank.py"], "env 0 0 4 4 127.0.0.1"),
        (
            [*RUN, "--", "--nnodes", "2", "--nproc-per-node", "4", "rank.py"],
            "env 0 0 8 4 127.0.0.1",
        ),
        (
            ["--world-size", "16", *RUN, "--nproc-per-node", "8", "rank.py"],
            "env 0 0 16 8 127.0.0.1",
        ),
        (["--rank", "3", *RUN, "--nproc-per-node", "4", "-m", "rank"], "env 3 3 4 4 127.0.0.1"),
    ],
)
def test_the_first_process_of_torchrun_is_estimated_with_its_world_size(
    folder: Path, estimate: Estimate, words: list[str], env: str
) -> None:
    write(folder, "rank.py", RANK)
    done = estimate(*words)
    assert done.returncode == 0, done.stderr
    assert env in done.stderr
    if "--lr" in words:
        assert "--lr 1" in done.stderr


def test_a_launcher_that_starts_python_by_itself_is_followed(
    folder: Path, estimate: Estimate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As accelerate and DeepSpeed do: one process after the other, the rank in its environment."""
    from peakline._estimate import launchers

    monkeypatch.setattr(launchers, "_MODULES", {"starter"})
    source = """
        import os, subprocess, sys
        for rank in range(2):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MODE="bf16")
            subprocess.Popen([sys.executable, "-u", "child.py", *sys.argv[1:]], env=env)
    """
    write(folder, "starter.py", source)
    child = """
        import os, sys, torch
        names = ("RANK", "WORLD_SIZE", "MODE")
        print("child", *(os.environ[name] for name in names), *sys.argv[1:])
        torch.zeros(9, device="cuda")
    """
    write(folder, "child.py", child)
    monkeypatch.setenv("MODE", "")
    done = estimate("-m", "starter", "--lr", "1")
    assert done.returncode == 0, done.stderr
    assert "child 0 2 bf16 --lr 1" in done.stderr


def test_a_launcher_that_starts_nothing_is_one_sentence_that_names_world_size(
    folder: Path, estimate: Estimate, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peakline._estimate import launchers

    monkeypatch.setattr(launchers, "_MODULES", {"starter"})
    write(folder, "starter.py", "print('nothing to do')\n")
    done = estimate("-m", "starter")
    assert done.returncode == 2
    assert "--world-size" in done.stderr


def test_spawn_runs_the_rank_that_was_asked_for(folder: Path, answer: Answer) -> None:
    source = """
        import torch
        import torch.distributed as dist
        import torch.multiprocessing as mp

        def work(rank, world):
            dist.init_process_group("nccl", rank=rank, world_size=world)
            torch.cuda.set_device(rank)
            torch.zeros(1024, device="cuda")

        if __name__ == "__main__":
            world = torch.cuda.device_count()
            mp.spawn(work, args=(world,), nprocs=world)
    """
    write(folder, "spawns.py", source)
    found = answer("spawns.py", "--world-size", "4", "--rank", "2")
    assert found["device"] == "cuda:2"
    assert found["world_size"] == 4


def test_of_processes_that_train_the_rank_that_was_asked_for_runs(
    folder: Path, answer: Answer
) -> None:
    source = """
        import multiprocessing
        import torch
        import torch.distributed as dist

        class Worker(multiprocessing.Process):
            def __init__(self, rank, world):
                super().__init__()
                self.rank, self.world = rank, world

            def run(self):
                dist.init_process_group("nccl", rank=self.rank, world_size=self.world)
                torch.cuda.set_device(self.rank)
                torch.zeros(1024, device="cuda")

        if __name__ == "__main__":
            world = torch.cuda.device_count()
            workers = [Worker(rank, world) for rank in range(world)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
    """
    write(folder, "starts.py", source)
    found = answer("starts.py", "--world-size", "4", "--rank", "2")
    assert found["device"] == "cuda:2"
    assert any("of the 4 processes" in line for line in found["warnings"])


def test_one_process_that_is_spawned_is_all_of_them(folder: Path, answer: Answer) -> None:
    source = """
        import torch
        import torch.multiprocessing as mp

        def work(rank):
            torch.zeros(1024, device="cuda")

        if __name__ == "__main__":
            mp.spawn(work, nprocs=1)
    """
    write(folder, "spawns.py", source)
    assert not [line for line in answer("spawns.py")["warnings"] if "processes" in line]


def test_a_script_that_wants_a_launcher_is_told_of_world_size(
    folder: Path, estimate: Estimate
) -> None:
    source = """
        import os
        import torch
        import torch.distributed as dist

        dist.init_process_group("nccl")
        torch.zeros(1024, device=int(os.environ["LOCAL_RANK"]))
    """
    write(folder, "launched.py", source)
    alone = estimate("launched.py")
    assert alone.returncode == 1
    assert "it wants LOCAL_RANK, which a launcher sets; --world-size N" in alone.stderr
    assert estimate("launched.py", "--world-size", "4").returncode == 0
    assert "WORLD_SIZE" not in os.environ  # of the tests: `peakline run` names its file by it


def test_a_module_runs_with_its_own_arguments(folder: Path, estimate: Estimate) -> None:
    (folder / "package").mkdir()
    write(folder, "package/__init__.py", "")
    write(
        folder, "package/go.py", "import sys, torch\ntorch.zeros(9, device='cuda')\nprint(sys.argv)"
    )
    done = estimate("-m", "package.go", "--", "--lr", "1")
    assert done.returncode == 0, done.stderr
    assert "'--lr', '1'" in done.stderr
