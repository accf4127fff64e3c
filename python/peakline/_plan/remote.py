"""What runs on a cluster's worker: one estimate, by a warm process that the worker keeps.

Workers see the same files as this machine, as clusters with a shared disk do.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from typing import Any

from peakline._plan.estimates import Result, Task

_LOCK = threading.Lock()
_WARM: list[subprocess.Popen[str]] = []  # processes that wait for work


def order(task: Task, script: str | None) -> str:
    """All that a worker needs to know, as JSON."""
    return json.dumps(
        {
            "task": task.to_json(),
            "folder": os.getcwd(),
            "environment": dict(os.environ),
            "script": script,
        }
    )


def run(text: str) -> dict[str, Any]:
    """On the worker. A result that is `lost` says nothing about the plan."""
    process = _take()
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(text + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        found: dict[str, Any] = json.loads(line)
    except (OSError, ValueError):
        process.kill()
        process.wait()
        return {"lost": True, "output": "peakline: the worker's process went away"}
    with _LOCK:
        _WARM.append(process)
    return found


def _take() -> subprocess.Popen[str]:
    with _LOCK:
        while _WARM:
            process = _WARM.pop()
            if process.poll() is None:
                return process
    command = [sys.executable, "-m", "peakline._plan.worker"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, text=True, stderr=subprocess.DEVNULL, **pipes)


def close_all() -> None:
    """Ends the warm processes of this worker."""
    with _LOCK:
        while _WARM:
            process = _WARM.pop()
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
            process.terminate()
            process.wait()


def result(found: dict[str, Any]) -> Result:
    return Result(**found)
