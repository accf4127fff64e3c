"""What single operators allocate, against an H200: shares that may rise and must not fall.

The measurements are in tests/data/kernels/ops_h200.jsonl and, of calls that were predicted before,
in measured_{fresh,unseen}_ops_h200.jsonl; `tools/compare_ops.py` lists what errs. Convolutions are
planned by cuDNN where it is installed, and estimated by rules where it is not: both are compared.
"""

from __future__ import annotations

from typing import Any

import pytest

from peakline._cudnn import planner_files

FILES = ("ops_h200.jsonl", "measured_fresh_ops_h200.jsonl", "measured_unseen_ops_h200.jsonl")

# Group: rows, within 1% and within 10% of the real peak rise, the worse of forward and backward.
SHARES = {
    "cudnn": {
        "recorded": (114, 114, 114),
        "explored": (180, 179, 180),
        "held_out": (117, 113, 117),
        "fresh": (85, 84, 85),
        "unseen": (87, 87, 87),
    },
    "rules": {
        "recorded": (114, 109, 113),
        "explored": (180, 171, 179),
        "held_out": (117, 111, 117),
        "fresh": (85, 72, 75),
        "unseen": (87, 71, 75),
    },
}


@pytest.fixture(scope="module", params=SHARES)
def way(request: pytest.FixtureRequest) -> str:
    """Who says which kernels convolutions take."""
    if request.param == "cudnn" and not planner_files():
        pytest.skip("no cuDNN that peakline-planner could ask")
    return str(request.param)


@pytest.fixture(scope="module")
def results(compare_ops: Any, way: str) -> Any:
    folder = compare_ops.MEASURED.parent
    rows = [row for file in FILES for row in compare_ops.read(folder / file)]
    with pytest.MonkeyPatch.context() as environment:
        if way == "rules":
            environment.setenv("PEAKLINE_CUDNN", "off")
        return compare_ops.compare(rows, "h200")


@pytest.mark.parametrize("group", SHARES["rules"])
def test_no_fewer_operators_agree_with_the_gpu_than_did(
    compare_ops: Any, results: Any, way: str, group: str
) -> None:
    rows, close, near = SHARES[way][group]
    chosen = [r for r in results if r.group == group]
    far = "\n".join(f"{r.error:.1%} {r.name}" for r in chosen if r.error > 0.01)
    assert len(chosen) == rows
    assert compare_ops.within(chosen, 0.01) >= close, far
    assert compare_ops.within(chosen, 0.1) >= near, far


def test_every_operator_runs_on_the_virtual_gpu(results: Any) -> None:
    assert [(r.name, r.problem) for r in results if r.problem] == []


def test_a_wrong_prediction_would_be_seen(compare_ops: Any) -> None:
    real = {"forward": 1_000_000, "backward": 2_000_000}
    wrong = compare_ops.Compared("n", "f", "g", real, {"forward": 1_000_000, "backward": 1_700_000})
    assert wrong.error == pytest.approx(0.15)
    assert compare_ops.within([wrong], 0.1) == 0
