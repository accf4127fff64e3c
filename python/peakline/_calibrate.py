"""`peakline calibrate`: measures a profile of the GPU at hand. The C++ program starts it."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from peakline import _new_file

FAILED = 1
BAD_USAGE = 2
_EXAMPLE = (
    "example: peakline calibrate -o my-gpu.toml; then peakline estimate --gpu my-gpu.toml train.py"
)
_MIB = 1 << 20


def _complain(message: str) -> None:
    print(f"peakline: {message}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _complain(f"{message}; {_EXAMPLE}")
        sys.exit(BAD_USAGE)


def used_by_all(index: int) -> int | None:
    """What nvidia-smi says is in use on the GPU; nothing where it does not answer."""
    query = [
        "nvidia-smi",
        f"--id={index}",
        "--query-gpu=memory.used",
        "--format=csv,noheader,nounits",
    ]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
        return int(answer.stdout.strip()) * _MIB
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def contexts(index: int, free: Callable[[], int], before: int | None) -> dict[str, int]:
    """Bytes outside torch's allocator after a first kernel, with cuBLAS, and with cuDNN.

    `before` is what others use, `free` what is left of the whole GPU.
    """
    total = torch.cuda.get_device_properties(index).total_memory
    others = before or 0

    def outside() -> int:
        torch.cuda.synchronize()
        return max(0, total - free() - torch.cuda.memory_reserved() - others)

    x = torch.ones(64, 64, device="cuda")
    found = {"context": outside()}
    x @ x
    found["context_with_cublas"] = max(found["context"], outside())
    picture, weight = torch.ones(1, 8, 8, 8, device="cuda"), torch.ones(8, 8, 3, 3, device="cuda")
    torch.nn.functional.conv2d(picture, weight)
    found["context_with_cudnn"] = max(found["context_with_cublas"], outside())
    return found


def profile(index: int) -> tuple[str, dict[str, str | int]]:
    """The GPU's name, and its numbers under the keys of a profile."""
    before = used_by_all(index)
    torch.cuda.set_device(index)
    # torch's type stubs know only some of the attributes.
    properties: Any = torch.cuda.get_device_properties(index)
    numbers: dict[str, str | int] = {
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sm_count": properties.multi_processor_count,
        "max_threads_per_sm": properties.max_threads_per_multi_processor,
        "registers_per_sm": properties.regs_per_multiprocessor,
        "warp_size": properties.warp_size,
        "total_memory": properties.total_memory,
        "l2_cache": properties.L2_cache_size,
        "shared_memory_per_block": properties.shared_memory_per_block,
        "shared_memory_per_block_opt_in": properties.shared_memory_per_block_optin,
        "shared_memory_per_sm": properties.shared_memory_per_multiprocessor,
    }
    numbers |= contexts(index, lambda: torch.cuda.mem_get_info(index)[0], before)
    return str(properties.name), numbers


def to_toml(name: str, numbers: dict[str, str | int]) -> str:
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    identity = "-".join(re.findall(r"[a-z0-9]+", name.lower())) or "gpu"
    lines = [f'id = "{identity}"', f'name = "{quoted}"', "", "[measured]"]
    for key, value in numbers.items():
        lines.append(f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}")
    return "\n".join(lines) + "\n"


def _with_times(text: str, seconds: float, table_path: str | None) -> str:
    from peakline import _calibrate_time

    rows = _calibrate_time.table(seconds=seconds)
    if table_path:
        _new_file.write_text(table_path, "".join(json.dumps(row) + "\n" for row in rows))
    sheet = _calibrate_time.data_sheet(torch.cuda.get_device_name())
    return _calibrate_time.calibrated(text, rows, _calibrate_time.host(), sheet)


def _is_known(name: str) -> bool:
    from peakline import _C

    try:
        _C.cost.Profile(name)
    except ValueError:
        return False
    return True


def _with_host(text: str, name: str) -> str:
    """Times of the host alone, and rates of the GPU as the profile that is installed has them."""
    from peakline import _C, _calibrate_time

    known = _C.cost.Profile(name).to_toml()
    return _calibrate_time.with_known_rates(text, _calibrate_time.host(), known)


def main(argv: list[str]) -> int:
    parser = _Parser(
        prog="peakline calibrate",
        description="Measures a profile of the GPU at hand, for `peakline estimate --gpu FILE`.",
        epilog=_EXAMPLE,
    )
    parser.add_argument(
        "-o", dest="output", metavar="FILE", help="the profile (.toml); default: stdout"
    )
    parser.add_argument("--device", type=int, default=0, metavar="N", help="which GPU (default: 0)")
    parser.add_argument(
        "--time",
        action="store_true",
        help="also measure how fast it is: up to eight minutes; the GPU must be idle otherwise",
    )
    parser.add_argument(
        "--host",
        action="store_true",
        help="measure how fast this machine's host is, and take what peakline knows of such a GPU",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=420.0,
        metavar="N",
        help="with --time: stop measuring after this long (default: 420)",
    )
    parser.add_argument(
        "--table", metavar="FILE", help="with --time: keep the measured calls (.jsonl)"
    )
    args = parser.parse_args(argv)
    if not torch.cuda.is_available():
        _complain("no GPU that torch can use is here; calibrate runs on the GPU to be described")
        return FAILED
    if not 0 <= args.device < torch.cuda.device_count():
        _complain(f"there is no GPU {args.device}; this machine has {torch.cuda.device_count()}")
        return BAD_USAGE
    if args.host and args.time:
        _complain("--time measures the host, too; give one of --time and --host")
        return BAD_USAGE
    name = torch.cuda.get_device_name(args.device)
    if args.host and not _is_known(name):
        _complain(f"peakline knows no rates of '{name}': measure them with --time")
        return BAD_USAGE
    text = to_toml(*profile(args.device))
    if args.host:
        text = _with_host(text, name)
    if args.time:
        text = _with_times(text, args.seconds, args.table)
    if args.output is None:
        print(text, end="")
        return 0
    try:
        _new_file.write_text(args.output, text)
    except OSError as error:
        _complain(f"{args.output}: {error.strerror}")
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
