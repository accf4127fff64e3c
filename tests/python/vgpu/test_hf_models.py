"""Models given by a configuration alone: `estimate --hf` and `kv`."""

import importlib.util
import json
from pathlib import Path

import pytest
from estimate_support import Answer, Estimate

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "dtype": "bfloat16",
}
HAS_TRANSFORMERS = importlib.util.find_spec("transformers") is not None
needs_transformers = pytest.mark.skipif(not HAS_TRANSFORMERS, reason="transformers is missing")


@pytest.fixture
def config(folder: Path) -> str:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return "config.json"


@pytest.mark.skipif(HAS_TRANSFORMERS, reason="transformers is installed")
def test_without_transformers_it_is_one_sentence(config: str, estimate: Estimate) -> None:
    done = estimate("--hf", config)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "needs transformers, which is not installed" in done.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["train.py", "--batch", "8"], "--batch is for --hf"),
        (["train.py", "--hf", "config.json"], "give either --hf or a script"),
        (["--hf", "config.json", "--train", "most"], "invalid choice: 'most'"),
    ],
)
def test_flags_that_cannot_be_meant_are_one_sentence(
    config: str, estimate: Estimate, flags: list[str], words: str
) -> None:
    done = estimate(*flags)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@needs_transformers
def test_a_file_that_is_no_configuration_is_one_sentence(folder: Path, estimate: Estimate) -> None:
    for text in ("{", "[]", "{}"):
        (folder / "bad.json").write_text(text)
        done = estimate("--hf", "bad.json")
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
    assert "cannot read" in estimate("--hf", "none.json").stderr


@needs_transformers
def test_it_generates_and_trains(config: str, answer: Answer) -> None:
    generated = answer("--hf", config, "--batch", "2", "--length", "64", "--new-tokens", "2")
    assert generated["prefill"]["peak_allocated"] > 0
    trained = answer("--hf", config, "--batch", "2", "--length", "64", "--train", "full")
    assert trained["steps_completed"] == 3
    assert trained["by_category"]["Optstate"] > 0
