"""`peakline kv`: the C++ program starts it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

from peakline import _C, _new_file, _scratch, _script
from peakline._estimate import arguments, neighbours
from peakline._estimate.arguments import BAD_USAGE, complain
from peakline._kv.serving import Serving, sharded
from peakline.run import format_size

EXAMPLE = "example: peakline kv config.json --gpu h100 --memory 70GiB --length 8192"
_UNLIMITED = str(2**48)
_NO_CACHE = "no KV cache was seen: the script has to run a model with a cache of transformers'"
DOES_NOT_FIT = 3


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        complain(f"{message}; {EXAMPLE}")
        sys.exit(BAD_USAGE)


def main(argv: list[str]) -> int:
    at = argv.index("--") if "--" in argv else len(argv)
    args = _parser().parse_args(argv[:at])
    _check(args)
    with _scratch.folder("kv") as folder:
        try:
            program = _program(args, argv[at + 1 :], folder)
            status, answer, layers = _run([*_gpu(args), *program])
        except (ValueError, OSError) as error:
            complain(str(error))
            return BAD_USAGE
    if answer is None or answer["partial"]:
        return status or 1
    if not layers:
        complain(_NO_CACHE)
        return 1
    limit = args.memory or _usual_memory(args.gpu)
    peak = (answer["prefill"] or answer)["peak_reserved"]
    beside = peak - sum(layer.bytes for layer in layers)
    found = Serving(limit, beside, layers, args.block_size, args.length)
    told = _told(found, answer, args)
    if args.json:
        text = json.dumps(told) + "\n"
        sys.stdout.write(text) if args.json == "-" else _new_file.write_text(args.json, text)
    if args.json != "-":
        print(_text(told), end="")
    return 0 if found.requests else DOES_NOT_FIT


def _parser() -> _Parser:
    parser = _Parser(
        prog="peakline kv",
        description="How many tokens of KV cache, and requests, fit beside a model's weights and "
        "the activations of its prefill, which is run on a virtual GPU.",
        epilog=f"Exits with 0 when at least one request fits, 3 when none does. {EXAMPLE}",
    )
    parser.add_argument("model", help="config.json, a folder that has one, or a script")
    parser.add_argument("--gpu", default="h200", metavar="NAME", help="default: h200")
    parser.add_argument(
        "--memory",
        type=arguments.size,
        metavar="SIZE",
        help="what the allocator may reserve; default: all of the GPU's",
    )
    parser.add_argument(
        "--length", type=int, default=8192, metavar="N", help="tokens a request; default: 8192"
    )
    parser.add_argument(
        "--prefill-tokens",
        type=int,
        metavar="N",
        help="the most tokens of a prefill at a time; default: a request's",
    )
    parser.add_argument(
        "--block-size", type=int, default=16, metavar="N", help="tokens a block; default: 16"
    )
    parser.add_argument(
        "--tp", type=int, default=1, metavar="N", help="shards of a tensor parallel model"
    )
    parser.add_argument("--dtype", metavar="NAME", help="of the weights; default: the config's")
    parser.add_argument("--json", metavar="FILE", help="write the answer as JSON; - is stdout")
    return parser


def _check(args: argparse.Namespace) -> None:
    for name in ("length", "block_size", "tp"):
        if getattr(args, name) < 1:
            _parser().error(f"--{name.replace('_', '-')} takes a number from 1")
    if args.prefill_tokens is not None and args.prefill_tokens < 1:
        _parser().error("--prefill-tokens takes a number from 1")


def _gpu(args: argparse.Namespace) -> list[str]:
    return ["--gpu", args.gpu, "--memory", _UNLIMITED]


def _program(args: argparse.Namespace, words: list[str], folder: str) -> list[str]:
    """For `estimate`: a prefill, and one token more."""
    if args.model.endswith(".py"):
        if args.tp > 1 or args.prefill_tokens or args.dtype:
            raise ValueError("--tp, --prefill-tokens and --dtype are for a configuration")
        return [args.model, "--", *words]
    from peakline._hf import models

    models.check(args.model)
    config = Path(folder) / "config.json"
    config.write_text(json.dumps(sharded(models._read(args.model), args.tp)))
    tokens = min(args.prefill_tokens or args.length, args.length)
    dtype = ["--dtype", args.dtype] if args.dtype else []
    return ["--hf", str(config), "--length", str(tokens), "--new-tokens", "2", *dtype]


def _run(words: list[str]) -> tuple[int, dict[str, Any] | None, list[Any]]:
    from peakline._estimate_script import estimate
    from peakline._kv.caches import Caches

    caches = Caches()
    with caches.watched():
        status, answer = estimate(arguments.parse(words), neighbours.Neighbours(words))
    return status, answer, [caches.layers[number] for number in sorted(caches.layers)]


def _usual_memory(gpu: str) -> int:
    from peakline.virtual_gpu import virtual_gpu

    with virtual_gpu(gpu):
        found = _C.vgpu.properties(0)
        return int(found["total_memory"] - found["context"])


def _told(found: Serving, answer: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    categories = answer["by_category"]
    weights = categories.get("Parameter", 0) + categories.get("Buffer", 0)
    return {
        "schema_version": answer["schema_version"],
        "gpu": answer["gpu"],
        "torch": answer["torch"],
        "memory_limit": found.memory,
        "weights": weights,
        "activations": max(0, found.beside - weights),
        "kv_bytes": found.pool,
        "bytes_per_token": found.bytes_per_token,
        "bytes_per_request": found.bytes_per_request,
        "block_size": found.block,
        "blocks": found.blocks,
        "tokens": found.tokens,
        "length": found.length,
        "requests": found.requests,
        "fits": found.requests > 0,
        "tp": args.tp,
        "warnings": [],
    }


def _text(told: dict[str, Any]) -> str:
    gpus = f"each of {told['tp']} GPUs ({told['gpu']})" if told["tp"] > 1 else told["gpu"]
    return (
        f"{_C.counted(told['requests'], 'request')} of {told['length']:,} tokens fit "
        f"{format_size(told['memory_limit'])} on {gpus}.\n"
        f"  weights      {format_size(told['weights']):>10}\n"
        f"  activations  {format_size(told['activations']):>10}  the prefill's peak, as reserved\n"
        f"  KV cache     {format_size(told['kv_bytes']):>10}  {told['tokens']:,} tokens in "
        f"{told['blocks']:,} blocks of {told['block_size']}; "
        f"{told['bytes_per_token']:,.0f} bytes a token\n"
    )


if __name__ == "__main__":
    sys.exit(_script.for_a_reader(lambda: main(sys.argv[1:])))
