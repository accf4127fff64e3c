"""Every script in examples/ runs on a virtual GPU, small."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from estimate_support import Estimate

import peakline

EXAMPLES = Path(__file__).parents[3] / "examples"
SMALL: dict[str, list[str]] = {
    "compiled.py": ["--width", "128", "--layers", "2", "--batch", "256"],
    "fsdp.py": [],  # tests/python/test_questions_answered.py has it
    "generate.py": ["--size", "tiny", "--length", "64", "--new-tokens", "3"],
    "hf_trainer.py": ["--steps", "2"],
    "lightning_trainer.py": ["--steps", "2"],
    "llama.py": ["--size", "tiny", "--length", "64"],
    "llama_4d.py": [],  # tests/python/distributed has it
    "offload.py": ["--size", "tiny", "--length", "64"],
    "track.py": [],  # it tracks, which is not to be had inside an estimate
    "train_hf.py": ["--model", "lstm", "--batch-size", "2"],
}
NEEDED = {
    "compiled.py": ["triton"],
    "generate.py": ["transformers"],
    "hf_trainer.py": ["transformers", "accelerate"],
    "lightning_trainer.py": ["lightning"],
}
# Those that track a real run by themselves, here on the CPU.
TRACKED = ["hf_trainer.py", "lightning_trainer.py", "track.py"]


def test_every_example_is_in_this_file() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SMALL)


def skip_unless_installed(name: str) -> None:
    for library in NEEDED.get(name, []):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")


@pytest.mark.parametrize("name", [name for name, words in SMALL.items() if words])
def test_an_example_fits(name: str, estimate: Estimate) -> None:
    skip_unless_installed(name)
    done = estimate(str(EXAMPLES / name), "--json", "-", "--", *SMALL[name])
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert not found["partial"]
    if name == "generate.py":
        assert found["prefill"]["peak_allocated"] > 0 < found["decode"]["peak_allocated"]
    if name == "offload.py":
        assert found["host_pinned_peak"] > 0


@pytest.mark.parametrize("name", TRACKED)
def test_an_example_tracks_a_real_run_and_keeps_it(name: str, tmp_path: Path) -> None:
    skip_unless_installed(name)
    kept = tmp_path / "run.peak"
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, "--steps", "2", "-o", kept],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = peakline.load(kept)
    assert len(run.steps) == 2
    assert run.peak("cpu").by_category["Optstate"] > 0
