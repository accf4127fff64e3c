"""200 candidates on a Dask cluster of two workers, one killed half-way.

`python benchmarks/plan_candidates.py` needs `pip install distributed`.
Prints how many came back, and how long it took.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from peakline._plan.estimates import Result, Task
from peakline._plan.on_dask import OnDask

TRAIN = """
    import sys
    import torch
    from torch import nn

    rows = int(sys.argv[1])
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(8))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(3):
        model(torch.randn(rows, 512, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def start(folder: Path, module: str, *args: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"distributed.cli.{module}", *args]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=folder, start_new_session=True, **quiet)  # type: ignore[call-overload, no-any-return]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=200)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        return run(Path(name), args.candidates)


def run(folder: Path, candidates: int) -> int:
    (folder / "train.py").write_text(textwrap.dedent(TRAIN))
    file = folder / "scheduler.json"
    shared = ("--scheduler-file", str(file), "--no-dashboard")
    processes = [start(folder, "dask_scheduler", *shared, "--port", "0")]
    processes += [start(folder, "dask_worker", *shared, "--nthreads", "1") for _ in range(2)]
    try:
        while not file.exists():
            time.sleep(0.1)
        os.chdir(folder)
        runner = OnDask(json.loads(file.read_text())["address"])
        found: dict[int, Result] = {}
        began = time.perf_counter()

        def done(number: int, result: Result) -> None:
            found[number] = result
            if len(found) == candidates // 2:
                os.killpg(processes[1].pid, signal.SIGKILL)
                print(f"{len(found)} are there; one of two workers is killed", flush=True)

        tasks = [Task(["train.py", "--", str(16 * (i + 1))]) for i in range(candidates)]
        runner.run(tasks, done, "train.py")
        seconds = time.perf_counter() - began
        runner.close()
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    good = sum(result.answer is not None for result in found.values())
    print(f"{good} of {candidates} estimates came back in {seconds:.0f} s")
    return 0 if good == candidates else 1


if __name__ == "__main__":
    sys.exit(main())
