"""Every script in examples/ runs on a virtual GPU, small."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from estimate_support import Estimate

EXAMPLES = Path(__file__).parents[3] / "examples"
SMALL: dict[str, list[str]] = {
    "fsdp.py": [],  # tests/python/test_questions_answered.py has it
    "generate.py": ["--size", "tiny", "--length", "64", "--new-tokens", "3"],
    "llama.py": ["--size", "tiny", "--length", "64"],
    "llama_4d.py": [],  # tests/python/distributed has it
    "offload.py": ["--size", "tiny", "--length", "64"],
    "train_hf.py": ["--model", "lstm", "--batch-size", "2"],
}
NEED_TRANSFORMERS = {"generate.py"}


def test_every_example_is_in_this_file() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SMALL)


@pytest.mark.parametrize("name", [name for name, words in SMALL.items() if words])
def test_an_example_fits(name: str, estimate: Estimate) -> None:
    if name in NEED_TRANSFORMERS and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    done = estimate(str(EXAMPLES / name), "--json", "-", "--", *SMALL[name])
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert not found["partial"]
    if name == "generate.py":
        assert found["prefill"]["peak_allocated"] > 0 < found["decode"]["peak_allocated"]
    if name == "offload.py":
        assert found["host_pinned_peak"] > 0
