"""`peakline calibrate --time`: how fast the GPU at hand and its host are."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from peakline import _C, _host_programs

Row = dict[str, Any]
_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_CALLS = 40  # between events, of each row
_LONG_US = 20_000.0  # of a call: fewer of these are enough
_EVENT_ISSUE_US = 5.0  # of the host, for each event
_CYCLES_PER_US = 2_000  # no GPU is quicker than that by much
_MOST_ELEMENTS = 1 << 27


def table(draws: int = 60, seconds: float = 420.0, seed: int = 1) -> list[Row]:
    """Up to `draws` calls of each family with their times, the families in turn, in `seconds`."""
    rng = random.Random(seed)
    end = time.monotonic() + seconds
    rows: list[Row] = []
    for _ in range(draws):
        for family in _FAMILIES:
            if time.monotonic() > end:
                return rows
            row = _measured(family, rng)
            if row is not None:
                rows.append(row)
    return rows


def _measured(family: str, rng: random.Random) -> Row | None:
    row, call = _FAMILIES[family](rng)
    row = {"op": family, **row}
    try:
        with torch.no_grad():
            times = _times(call)
    except RuntimeError:  # out of memory, or not on this GPU
        return None
    finally:
        del call
    row["us"] = round(statistics.median(times), 2)
    row["best_us"] = round(min(times), 2)
    return row


def _times(call: Callable[[], Any]) -> list[float]:
    """Microseconds between events around each of many calls that are queued back to back."""
    for _ in range(3):
        call()
    first = _between(call, 1)[0]
    return _between(call, 5 if first > _LONG_US else _CALLS, _issue_us(call, 3))


def _between(call: Callable[[], Any], count: int, issue_us: float = 20.0) -> list[float]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    torch.cuda.synchronize()
    _hold_back(count * (issue_us + _EVENT_ISSUE_US))
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    return [1e3 * a.elapsed_time(b) for a, b in itertools.pairwise(events)]


def _hold_back(us: float) -> None:
    """Keeps the GPU busy while the calls are issued, so that they wait in its queue."""
    sleep = getattr(torch.cuda, "_sleep", None)
    if sleep is not None and not _C.vgpu.active():
        sleep(int(_CYCLES_PER_US * (1000 + 2 * us)))


def _log_range(rng: random.Random, low: int, high: int, multiple: int = 1) -> int:
    value = int(math.exp(rng.uniform(math.log(low), math.log(high))))
    return max(multiple, value // multiple * multiple)


def _dtype(rng: random.Random) -> tuple[str, torch.dtype]:
    name = rng.choice(["f32", "bf16", "bf16", "f16"])
    return name, _DTYPES[name]


def _matrix(rng: random.Random) -> tuple[Row, torch.Tensor]:
    rows = _log_range(rng, 8, 32768)
    cols = min(_log_range(rng, 8, 65536), _MOST_ELEMENTS // rows)
    if rng.random() < 0.5:
        cols = max(8, cols // 8 * 8)
    name, dtype = _dtype(rng)
    return {"rows": rows, "cols": cols, "dtype": name}, torch.ones(
        rows, cols, dtype=dtype, device="cuda"
    )


def _mm(rng: random.Random) -> tuple[Row, Callable[[], Any]]:
    multiple = rng.choice([1, 8, 64, 64])
    m, n, k = (_log_range(rng, 64, 12288, multiple) for _ in range(3))
    name, dtype = _dtype(rng)
    a = torch.ones(m, k, dtype=dtype, device="cuda")
    turned = rng.random() < 0.5
    b = torch.ones(n, k, dtype=dtype, device="cuda").t() if turned else None
    other = torch.ones(k, n, dtype=dtype, device="cuda") if b is None else b
    row = {"m": m, "n": n, "k": k, "dtype": name, "b_transposed": turned}
    return row, lambda: a @ other


def _bmm(rng: random.Random) -> tuple[Row, Callable[[], Any]]:
    b = _log_range(rng, 2, 256)
    m, n, k = (_log_range(rng, 32, 1024, 8) for _ in range(3))
    name, dtype = _dtype(rng)
    x = torch.ones(b, m, k, dtype=dtype, device="cuda")
    y = torch.ones(b, k, n, dtype=dtype, device="cuda")
    return {"b": b, "m": m, "n": n, "k": k, "dtype": name}, lambda: torch.bmm(x, y)


def _sdpa(rng: random.Random) -> tuple[Row, Callable[[], Any]]:
    b, h = _log_range(rng, 1, 16), rng.choice([4, 8, 16, 32])
    length, d = _log_range(rng, 128, 4096, 64), rng.choice([64, 128])
    name, dtype = _dtype(rng)
    causal = rng.random() < 0.5
    q = torch.ones(b, h, length, d, dtype=dtype, device="cuda")
    row = {"b": b, "h": h, "l": length, "d": d, "dtype": name, "causal": causal}
    return row, lambda: F.scaled_dot_product_attention(q, q, q, is_causal=causal)


def _conv(rng: random.Random) -> tuple[Row, Callable[[], Any]]:
    b, c, o = _log_range(rng, 1, 32), rng.choice([3, 32, 64, 128, 256, 512]), rng.choice([64, 256])
    s, k, stride = rng.choice([7, 14, 28, 56, 112]), rng.choice([1, 3, 3, 7]), rng.choice([1, 2])
    name, dtype = _dtype(rng)
    last = rng.random() < 0.5
    layout = torch.channels_last if last else torch.contiguous_format
    x = torch.ones(b, c, s, s, dtype=dtype, device="cuda").to(memory_format=layout)
    w = torch.ones(o, c, k, k, dtype=dtype, device="cuda").to(memory_format=layout)
    row = {"b": b, "c": c, "o": o, "s": s, "k": k, "stride": stride, "dtype": name}
    row["channels_last"] = last
    return row, lambda: F.conv2d(x, w, stride=stride, padding=k // 2)


def _pointwise(rng: random.Random) -> tuple[Row, Callable[[], Any]]:
    row, x = _matrix(rng)
    line, mask = x[0].clone(), x > 0
    calls: dict[str, Callable[[], Any]] = {
        "add": lambda: x + x,
        "add_bcast": lambda: x + line,
        "mul_scalar": lambda: x * 2,
        "exp": lambda: torch.exp(x),
        "gelu": lambda: F.gelu(x),
        "silu": lambda: F.silu(x),
        "where": lambda: torch.where(mask, x, x),
    }
    f = rng.choice(sorted(calls))
    return {**row, "f": f}, calls[f]


def _reduce(rng: random.Random) -> tuple[Row, Callable[[], Any]]:
    row, x = _matrix(rng)
    calls: dict[str, Callable[[], Any]] = {
        "sum_all": lambda: x.sum(),
        "sum_rows": lambda: x.sum(1),
        "sum_cols": lambda: x.sum(0),
        "amax_rows": lambda: x.amax(1),
    }
    f = rng.choice(sorted(calls))
    return {**row, "f": f}, calls[f]


def _norm(rng: random.Random) -> tuple[Row, Callable[[], Any]]:
    row, x = _matrix(rng)
    weight = torch.ones(x.shape[1], dtype=x.dtype, device="cuda")
    shape = (x.shape[1],)
    if rng.random() < 0.5:
        return {**row, "f": "rms"}, lambda: F.rms_norm(x, shape, weight)
    return {**row, "f": "layer"}, lambda: F.layer_norm(x, shape, weight, weight)


def _by_shape(make: Callable[[torch.Tensor], Callable[[], Any]]) -> Any:
    def family(rng: random.Random) -> tuple[Row, Callable[[], Any]]:
        row, x = _matrix(rng)
        return row, make(x)

    return family


def _gather(x: torch.Tensor) -> Callable[[], Any]:
    index = torch.randint(0, x.shape[1], x.shape, device="cuda")
    return lambda: torch.gather(x, 1, index)


def _adamw(rng: random.Random) -> tuple[Row, Callable[[], Any]]:
    tensors, each = rng.choice([4, 16, 64]), _log_range(rng, 10_000, 1_000_000)
    name, dtype = _dtype(rng)
    f = rng.choice(["fused", "foreach"])
    parameters = [torch.ones(each, dtype=dtype, device="cuda") for _ in range(tensors)]
    for parameter in parameters:
        parameter.requires_grad_()
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW(parameters, fused=f == "fused", foreach=f == "foreach")
    return {"tensors": tensors, "numel": tensors * each, "f": f, "dtype": name}, optimizer.step


_FAMILIES: dict[str, Callable[[random.Random], tuple[Row, Callable[[], Any]]]] = {
    "mm": _mm,
    "bmm": _bmm,
    "sdpa": _sdpa,
    "conv": _conv,
    "pointwise": _pointwise,
    "reduce": _reduce,
    "norm": _norm,
    "softmax": _by_shape(lambda x: lambda: torch.softmax(x, -1)),
    "dropout": _by_shape(lambda x: lambda: F.dropout(x, 0.5)),
    "copy": _by_shape(lambda x: lambda: x.clone()),
    "transpose": _by_shape(lambda x: lambda: x.t().contiguous()),
    "gather": _by_shape(_gather),
    "adamw": _adamw,
}


def host() -> dict[str, float]:
    """What the host and its link to the GPU take."""
    found = {"event_us": statistics.median(_between(lambda: None, 50))}
    small = _host_programs.fitted(_host_programs.measured(), _host_programs.counts())
    found |= small
    found["host_launch_us"] = _launch_us()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(200):
        torch.cuda.synchronize()
    found["host_sync_us"] = 1e6 * (time.perf_counter() - begin) / 200
    return found | _own_work() | _link()


_FEW_STEPS, _MANY_STEPS = 32, 160
_KERNELS_OF_A_STEP = 2  # of an LSTM in cuDNN: a product, and the cell
_HIDDEN = 256  # more than what cuDNN runs as one kernel


def _launch_us() -> float:
    """One kernel more: a long sequence in cuDNN beside a short one. The queue holds them all."""
    with torch.no_grad():
        few, many = _sequence_us(_FEW_STEPS), _sequence_us(_MANY_STEPS)
    return max(0.0, (many - few) / (_MANY_STEPS - _FEW_STEPS) / _KERNELS_OF_A_STEP)


def _sequence_us(steps: int) -> float:
    network = torch.nn.LSTM(_HIDDEN, _HIDDEN).cuda()
    x = torch.ones(steps, 4, _HIDDEN, device="cuda")
    network(x)
    return min(_issue_us(lambda: network(x), 1) for _ in range(10))


def _own_work() -> dict[str, float]:
    """Ops on the host's own tensors: how fast random numbers are drawn, and memory is read and
    written."""
    drawn = _seconds(lambda: torch.rand(1 << 24))
    numbers = torch.ones(1 << 24)
    moved = _seconds(lambda: numbers + numbers)
    return {
        "host_random_ns": 1e9 * drawn / numbers.numel(),
        "host_gbps": 3 * numbers.nbytes / moved / 1e9,
    }


def _seconds(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def _issue_us(call: Callable[[], Any], count: int) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    us = 1e6 * (time.perf_counter() - begin) / count
    torch.cuda.synchronize()
    return us


def _link() -> dict[str, float]:
    """To the GPU: a large copy of pinned memory tells the link's rate, a small one its start, and a
    large one of other memory the driver's."""
    other = torch.ones(1 << 26, dtype=torch.uint8)
    large = other.pin_memory()
    there = torch.empty_like(large, device="cuda")
    rate = large.numel() / statistics.median(
        _between(lambda: there.copy_(large, non_blocking=True), 8)
    )
    small = large[:256]
    start = statistics.median(_between(lambda: there[:256].copy_(small, non_blocking=True), 40))

    def from_other_memory() -> None:
        there.copy_(other)
        torch.cuda.synchronize()

    pageable = other.numel() / _seconds(from_other_memory)
    return {"pcie_gbps": rate / 1e3, "pcie_us": start, "pageable_gbps": pageable / 1e9}


_SHEET = ("tensor16_tflops", "tensor8_tflops", "tf32_tflops", "f32_tflops", "f64_tflops")
_SHEET_LINKS = ("dram_gbps", "nvlink_gbps", "network_gbps")


def data_sheet(name: str) -> list[str]:
    """The lines of a profile with the peaks of this GPU: the vendor's where peakline knows it.

    Shares of peaks are what kernels tell; an unknown GPU's peaks are what its best kernels reach.
    """
    try:
        known = _C.cost.Profile(name).to_toml().splitlines()
    except ValueError:
        return ["[estimated]", *(f"{key} = {value:.6g}" for key, value in _peaks().items())]
    kept = [line for line in known if line.split(" =")[0] in (*_SHEET, *_SHEET_LINKS)]
    return ["[public]", *kept]


def _peaks() -> dict[str, float]:
    """By one long product and one long copy, at the shares that an H200 has of its data sheet."""
    share = {"tensor": 0.83, "dram": 0.91}
    n = 8192
    a = torch.ones(n, n, dtype=torch.float16, device="cuda")
    large = torch.ones(1 << 28, dtype=torch.uint8, device="cuda")
    product, copy = (min(_times(call)) for call in (lambda: a @ a, large.clone))
    return {
        "tensor16_tflops": 2 * n**3 / product / 1e6 / share["tensor"],
        "dram_gbps": 2 * large.numel() / copy / 1e3 / share["dram"],
    }


def calibrated(
    profile_toml: str, rows: list[Row], numbers: dict[str, float], sheet: list[str]
) -> str:
    """The profile with the rates that `rows` and the host's numbers tell."""
    import tempfile

    lines = [f"{key} = {value:.6g}" for key, value in numbers.items()]
    text = profile_toml.replace("[measured]\n", "[measured]\n" + "\n".join(lines) + "\n", 1)
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text + "\n".join(sheet) + "\n")
        file.flush()
        start = _C.cost.Profile(file.name)
    jsonl = "\n".join(json.dumps(row) for row in rows)
    return _C.cost.fit_table(jsonl, start).to_toml()


def with_known_rates(profile_toml: str, numbers: dict[str, float], known: str) -> str:
    """The profile with the host's numbers, and for the rest what `known` says, a profile as text.

    Each number stays in the table that says where it comes from."""
    own = {line.split(" =")[0] for line in profile_toml.splitlines()} | set(numbers)
    tables: dict[str, list[str]] = {"[measured]": [f"{k} = {v:.6g}" for k, v in numbers.items()]}
    table = ""
    for line in known.splitlines():
        if line.startswith("["):
            table = line
        elif table in ("[measured]", "[public]", "[estimated]") and line.split(" =")[0] not in own:
            tables.setdefault(table, []).extend([line] if line else [])
    measured = "\n".join(["[measured]", *tables.pop("[measured]"), ""])
    rest = [line for table, lines in tables.items() for line in (table, *lines)]
    return "\n".join([profile_toml.replace("[measured]\n", measured, 1).rstrip(), *rest, ""])
