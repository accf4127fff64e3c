"""Training steps whose memory was measured on an H200, of those that need nothing but torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from peakline import _cudnn

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data" / "kernels"

needs_cudnn = pytest.mark.skipif(
    not _cudnn.planner_files(), reason="cuDNN is not installed: convolutions follow rules"
)


def estimated(name: str, kind: str, folder: Path) -> dict[str, int]:
    command = [sys.executable, "tools/measure_ops.py", str(folder), "--set", kind]
    command += ["--only", "models", "--names", name, "--virtual", "h200"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    row = json.loads((folder / "models.jsonl").read_text())
    assert "error" not in row, row["error"]
    return dict(row["step3"])


def measured(name: str, kind: str) -> dict[str, int]:
    rows = map(json.loads, (DATA / f"measured_{kind}_models_h200.jsonl").read_text().splitlines())
    return next(dict(row["step3"]) for row in rows if row["name"] == name)


def check(name: str, kind: str, folder: Path) -> None:
    real, found = measured(name, kind), estimated(name, kind, folder)
    assert found["allocated"] == pytest.approx(real["allocated"], rel=0.001)
    assert found["reserved"] == pytest.approx(real["reserved"], rel=0.005)


@pytest.mark.parametrize("name", ["fsdp4_experts_accumulated", "fsdp16_vit_pairs_prefetched"])
def test_sharded_models_take_what_they_took_on_a_gpu(name: str, tmp_path: Path) -> None:
    check(name, "fsdp", tmp_path)


@needs_cudnn
@pytest.mark.parametrize("name", ["resnext_fp32", "video_bf16", "dilated_segmenter_fp32"])
def test_convolutional_models_take_what_they_took_on_a_gpu(name: str, tmp_path: Path) -> None:
    check(name, "unseen", tmp_path)


def test_recurrent_models_take_what_they_took_on_a_gpu(tmp_path: Path) -> None:
    check("deep_gru_translator", "unseen", tmp_path)
