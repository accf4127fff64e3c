"""A job of 16,384 ranks: what a rank keeps, against a calculation by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("llama_405b.py")
PP, DP, CP, TP = 16, 64, 2, 8
WIDTH, FFN, VOCAB, KV = 16384, 53248, 128256, 1024
LAYERS = {0: 8, 15: 7}  # 126 over 16 stages


def by_hand(stage: int, dp: int) -> int:
    """Parameters of one rank in bytes: matrices are cut by tensor and data parallel, norms by data
    parallel alone. The rows of the vocabulary do not divide: 251 for each rank, 219 for the last.
    """
    matrices = 2 * WIDTH * WIDTH + 2 * WIDTH * KV + 3 * WIDTH * FFN
    layer = matrices // (TP * DP) + 2 * WIDTH // DP
    rows = 251 if dp < DP - 1 else VOCAB // TP - 251 * (DP - 1)
    ends = rows * WIDTH + (WIDTH // DP if stage == PP - 1 else 0)
    return 4 * (LAYERS[stage] * layer + ends)


@pytest.mark.parametrize(("stage", "dp"), [(0, 0), (15, 63)])
def test_parameters_and_states_are_those_calculated_by_hand(stage: int, dp: int) -> None:
    rank = (stage * DP + dp) * CP * TP
    command = [sys.executable, "-m", "peakline._estimate_script", str(SCRIPT)]
    command += ["--world-size", str(PP * DP * CP * TP), "--rank", str(rank), "--memory", "2000GiB"]
    done = subprocess.run([*command, "--", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = next(json.loads(line) for line in done.stderr.splitlines() if line.startswith("{"))
    assert found["stage"] == stage
    assert found["parameters"] == by_hand(stage, dp)
    assert found["states"] == 2 * by_hand(stage, dp)
