"""What `peakline kv` says, beside a real allocation. Needs a GPU, transformers and peakline.

python tools/kv_check.py CONFIG.json… [--memory 40GiB] [--length 4096] [--predicted FILE]

With --predict FILE the answers are only written, on any machine; --predicted takes them from there.
For each model: the answer without the GPU; then, on the GPU, weights, a pool of that size less what
the prefill's own cache takes, and the prefill beside it. The answer is right when this fits, and a
pool that is larger by one block of tokens does not; by how much it is off, a pool larger by --slack
(2%) tells.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def asked(config: str, args: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "peakline._kv_script", config, "--json", "-"]
    command += ["--memory", args.memory, "--length", str(args.length)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def really_fits(config: str, limit: int, pool: int, length: int) -> bool:
    """In a process of its own, whose allocator has taken nothing yet."""
    command = [sys.executable, __file__, config, "--really", str(limit), str(pool)]
    done = subprocess.run([*command, "--length", str(length)], capture_output=True, text=True)
    if "FITS" not in done.stdout and "OUT OF MEMORY" not in done.stdout:
        sys.exit(done.stderr[-2000:])
    return "FITS" in done.stdout


def really(config: str, limit: int, pool: int, length: int) -> None:
    import torch

    from peakline._hf import models

    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(limit / total)
    try:
        made = models.load_config(config)
        model = models.build(made, models.dtype_of(made, None)).eval()
        held = torch.empty(pool, dtype=torch.uint8, device="cuda")
        prompt = models.inputs(model, 1, length)["input_ids"]
        with torch.inference_mode():
            model.generate(prompt, max_new_tokens=1, min_new_tokens=1, do_sample=False)
        del held
    except torch.OutOfMemoryError:
        print("OUT OF MEMORY")
        return
    print("FITS")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="+")
    parser.add_argument("--memory", default="40GiB")
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--slack", type=float, default=0.02)
    parser.add_argument("--predict", metavar="FILE", help="write the answers, and measure nothing")
    parser.add_argument("--predicted", metavar="FILE", help="take the answers from this file")
    parser.add_argument("--really", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.really:
        limit, pool = args.really
        really(args.configs[0], limit, pool, args.length)
        return
    if args.predict:
        answers = {Path(config).stem: asked(config, args) for config in args.configs}
        Path(args.predict).write_text(json.dumps(answers, indent=1) + "\n")
        return
    known = json.loads(Path(args.predicted).read_text()) if args.predicted else {}
    print("| Model | KV cache (MiB) | Requests | It fits | One block more | 2% more |")
    print("|---|---:|---:|---|---|---|")
    for config in args.configs:
        found = known.get(Path(config).stem) or asked(config, args)
        args.length = found["length"]
        own = int(found["bytes_per_token"] * args.length)  # the prefill writes it beside the pool
        limit, pool = found["memory_limit"], found["kv_bytes"] - own
        block = int(found["bytes_per_token"] * found["block_size"])
        pools = pool, pool + block, int(pool * (1 + args.slack))
        fit = [str(really_fits(config, limit, each, args.length)) for each in pools]
        shown = [Path(config).stem, f"{found['kv_bytes'] / 2**20:,.0f}", str(found["requests"])]
        print("| " + " | ".join([*shown, *fit]) + " |", flush=True)


if __name__ == "__main__":
    main()
