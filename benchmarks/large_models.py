"""What an estimate of a model larger than this machine costs it.

python benchmarks/large_models.py [8b 70b 405b]     405b needs transformers and safetensors

8b and 70b are built on the CPU, cast, moved and trained for three steps. 405b is read with
from_pretrained, from the index of 191 safetensors files that are a head and a hole each, and moved.
Prints seconds after the imports (CPU time, which other work on the machine hardly changes, and wall
time) and the most memory that the process held.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
TRAINED = """
import sys, time
sys.path.insert(0, {examples!r})
import torch
from llama import SHAPES, Llama
from torch.nn import functional as F

began = time.perf_counter(), time.process_time()
shape = SHAPES[{size!r}]
model = Llama(shape, 2048, True).to(torch.bfloat16).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    tokens = torch.randint(0, shape.vocabulary, (1, 2048)).to("cuda")
    F.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LOADED = """
import time
import torch
from transformers import LlamaForCausalLM
began = time.perf_counter(), time.process_time()
model = LlamaForCausalLM.from_pretrained({folder!r}, dtype=torch.bfloat16).to("cuda")
with torch.inference_mode():
    model(torch.randint(0, 1000, (1, 2048)).to("cuda"))
"""
TOLD = """
import resource
wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
parameters = sum(p.numel() for p in model.parameters())
print(f"| {parameters / 1e9:.1f} | {cpu:.1f} | {wall:.1f} | {held:.2f} |")
"""
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "dtype": "bfloat16",
}


def write_sparse(folder: Path, files: int = 191) -> None:
    """Weights of which only names, shapes and places are there."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**CONFIG))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    state = list(model.state_dict().items())
    each = -(-len(state) // files)
    index: dict[str, str] = {}
    for number in range(0, len(state), each):
        name = f"model-{number // each + 1:05}-of-{files:05}.safetensors"
        head, end = {}, 0
        for key, tensor in state[number : number + each]:
            size = tensor.numel() * 2
            shape, place = list(tensor.shape), [end, end + size]
            head[key] = {"dtype": "BF16", "shape": shape, "data_offsets": place}
            index[key], end = name, end + size
        text = json.dumps({"__metadata__": {"format": "pt"}, **head}).encode()
        with (folder / name).open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + end)
    listed = {"metadata": {"total_size": 0}, "weight_map": index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(listed))


def measure(size: str) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if size == "405b":
            write_sparse(folder)
            source = LOADED.format(folder=scratch)
        else:
            source = TRAINED.format(examples=str(EXAMPLES), size=size)
        (folder / "script.py").write_text(source + TOLD)
        command = [sys.executable, "-m", "peakline._estimate_script", "--steps", "all"]
        command += ["--memory", "32TiB", "--json", str(folder / "answer.json")]
        command.append(str(folder / "script.py"))
        done = subprocess.run(command, capture_output=True, text=True)
    # What the script prints goes to stderr, beside peakline's own lines.
    rows = [line for line in done.stderr.splitlines() if line.startswith("| ")]
    return rows[0] if rows else f"| {done.stderr[-500:]} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", default=["8b", "70b", "405b"])
    print("| Parameters (billions) | CPU time (s) | Wall time (s) | Memory held (GiB) |")
    print("|---:|---:|---:|---:|")
    for size in parser.parse_args().sizes:
        began = time.perf_counter()
        print(measure(size), flush=True)
        print(f"{size}: {time.perf_counter() - began:.0f} s in all", file=sys.stderr)


if __name__ == "__main__":
    main()
