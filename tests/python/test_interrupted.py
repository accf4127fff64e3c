"""Ctrl-C while a command is still importing torch: one line, and what a shell says of SIGINT."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
from pathlib import Path

import pytest

PROGRAM = Path(sysconfig.get_path("scripts")) / "peakline"
# A torch that is being imported until somebody interrupts, and that catches what is raised.
SLOW = """
import sys, time
print("importing", file=sys.stderr, flush=True)
try:
    time.sleep(600)
except BaseException:
    pass
"""


@pytest.mark.parametrize("command", ["plan", "estimate", "fit", "run", "kv", "calibrate"])
def test_one_line_is_said_and_the_status_is_130(command: str, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(SLOW)
    started = subprocess.Popen(
        [PROGRAM, command, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's job ignores it
    )
    assert started.stderr is not None
    assert started.stderr.readline() == "importing\n"
    started.send_signal(signal.SIGINT)
    rest = started.stderr.read()
    assert (started.wait(), rest) == (130, "peakline: interrupted\n")
