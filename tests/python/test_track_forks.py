"""Forks of a tracked process, in a process of their own.

Where autograd has run threads for a device, a virtual one too, torch lets no forked child run a
backward.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).parent / "forks" / "fork_cases.py"


def test_forks_of_a_process_that_ran_no_other_test() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run([*command, str(CASES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
