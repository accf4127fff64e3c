"""Models given by a configuration alone: `estimate --hf` and `kv`."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from estimate_support import Estimate

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
    path = folder / "config.json"
    path.write_text(json.dumps(CONFIG))
    return str(path)


def answer(*flags: str) -> dict[str, Any]:
    """In a process of its own: pytest's loader of peakline's modules can run none of them."""
    command = [sys.executable, "-m", "peakline._estimate_script", *flags, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(HAS_TRANSFORMERS, reason="transformers is installed")
def test_without_transformers_it_is_one_sentence(config: str, estimate: Estimate) -> None:
    done = estimate("--hf", config)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "needs transformers, which is not installed" in done.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--train", "lora"], "--train lora needs peft, which is not installed"),
        (["--train", "qlora"], "--train qlora needs bitsandbytes, which is not installed"),
        (
            ["--train", "full", "--optimizer", "adamw8bit"],
            "--optimizer adamw8bit needs bitsandbytes, which is not installed",
        ),
    ],
)
def test_a_package_that_is_missing_is_one_sentence(
    config: str, estimate: Estimate, flags: list[str], words: str
) -> None:
    package = words.split(" needs ")[1].split(",")[0]
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed")
    done = estimate("--hf", config, *flags)
    assert done.returncode == 2
    assert done.stderr == f"peakline: {words}\n"


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
def test_it_generates_and_trains(config: str) -> None:
    generated = answer("--hf", config, "--batch", "2", "--length", "64", "--new-tokens", "2")
    assert generated["prefill"]["peak_allocated"] > 0
    trained = answer("--hf", config, "--batch", "2", "--length", "64", "--train", "full")
    assert trained["steps_completed"] == 3
    assert trained["by_category"]["Optstate"] > 0


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not installed")


@needs("transformers", "peft")
def test_adapters_train_beside_weights_that_do_not(config: str) -> None:
    flags = ["--hf", config, "--batch", "2", "--length", "64", "--train"]
    lora, full = answer(*flags, "lora"), answer(*flags, "full")
    assert lora["steps_completed"] == 3
    assert 0 < lora["by_category"]["Optstate"] < full["by_category"]["Optstate"]
    assert lora["by_category"]["Parameter"] > full["by_category"]["Parameter"]


@needs("transformers", "peft", "bitsandbytes")
def test_four_bits_take_less_than_sixteen(config: str) -> None:
    flags = ["--hf", config, "--batch", "2", "--length", "64", "--checkpoint", "--train"]
    lora, qlora = answer(*flags, "lora"), answer(*flags, "qlora", "--optimizer", "adamw8bit")
    assert qlora["steps_completed"] == 3
    assert qlora["by_category"]["Parameter"] < lora["by_category"]["Parameter"]


@needs_transformers
@pytest.mark.parametrize("optimizer", ["adam", "sgd", "adagrad", "adafactor"])
def test_an_optimizer_of_torch_s_is_known_by_name(config: str, optimizer: str) -> None:
    flags = ["--batch", "1", "--length", "32", "--train", "full", "--checkpoint"]
    found = answer("--hf", config, *flags, "--optimizer", optimizer)
    assert found["steps_completed"] == 3
    assert found["by_category"]["Optstate"] > 0


@needs_transformers
def test_the_table_s_head_is_the_configuration(config: str) -> None:
    command = [sys.executable, "-m", "peakline._estimate_script", "--hf", config, "--length", "32"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.startswith(config), done.stderr


@needs("transformers", "bitsandbytes")
def test_types_that_an_optimizer_cannot_step_are_one_sentence(config: str) -> None:
    command = [sys.executable, "-m", "peakline._estimate_script", "--hf", config]
    flags = ["--length", "32", "--train", "full", "--optimizer", "sgd8bit"]
    done = subprocess.run([*command, *flags], capture_output=True, text=True)
    assert done.returncode == 1
    assert "bitsandbytes' SGD takes no bfloat16 gradients" in done.stderr
    assert "Traceback" not in done.stderr
    narrow = answer("--hf", config, *flags, "--dtype", "float32")
    assert narrow["steps_completed"] == 3


@needs_transformers
def test_a_shard_serves_with_half_the_weights(config: str) -> None:
    command = [sys.executable, "-m", "peakline._kv_script", config, "--memory", "1GiB"]
    flags = ["--length", "128", "--tp", "2"]
    done = subprocess.run([*command, *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "tokens fit 1.000 GiB on each of 2 GPUs (NVIDIA H200)." in done.stdout
    whole, half = (
        json.loads(subprocess.run([*command, *more, "--json", "-"], capture_output=True).stdout)
        for more in ([], flags)
    )
    assert half["bytes_per_token"] == whole["bytes_per_token"] / 2
    assert half["weights"] < 0.6 * whole["weights"]


SPEECH = {
    "model_type": "wav2vec2",
    "architectures": ["Wav2Vec2ForCTC"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "conv_dim": [32] * 7,
    "num_conv_pos_embeddings": 16,
    "layerdrop": 0.0,
}


@needs_transformers
def test_speech_is_trained_with_letters_to_align(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(SPEECH))
    found = answer("--hf", str(path), "--batch", "2", "--length", "16000", "--train", "full")
    assert found["steps_completed"] == 3
