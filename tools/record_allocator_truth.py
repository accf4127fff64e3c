"""Records what torch's CUDA caching allocator really does, for the simulator's conformance tests.

    python tools/record_allocator_truth.py OUT_DIR [--quick]

Needs one NVIDIA GPU. Every scenario runs in a process of its own, because the allocator reads its
settings once. A scenario that fails or hangs is reported and does not stop the others.

Two kinds of files come out, both gzipped:
  random.NAME.jsonl.gz  A run of random operations. The operations themselves are not stored: they
                        follow from the seed (class Program, mirrored in C++ by the tests). Stored
                        are the segments the allocator took and returned, the order in which blocks
                        that waited for other streams became free, and memory_stats() with a hash of
                        all addresses at every checkpoint.
  script.NAME.csv.gz    The allocator's own trace of a short written program, with rows for what
                        the trace does not show (empty_cache, limits, graph captures, checkpoints).
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import importlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MASK = (1 << 64) - 1
MIB = 1 << 20
GIB = 1 << 30
STREAMS = 4

# name: (allocator settings, operations, seed, largest live bytes, start with a limit)
RANDOM_RUNS: dict[str, tuple[str, int, int, int, bool]] = {
    "default": ("", 1_000_000, 1, 8 * GIB, False),
    "expandable": ("expandable_segments:True", 100_000, 2, 6 * GIB, True),
    "max_split": ("max_split_size_mb:128", 100_000, 3, 8 * GIB, True),
    "collect": ("garbage_collection_threshold:0.6", 100_000, 4, 6 * GIB, True),
    "roundup": ("roundup_power2_divisions:4", 50_000, 5, 8 * GIB, False),
    "roundup_list": (
        "roundup_power2_divisions:[1:2,64:8,128:2,256:4,>:1]",
        50_000,
        6,
        8 * GIB,
        False,
    ),
    "non_split_rounding": (
        "max_split_size_mb:64,max_non_split_rounding_mb:200",
        50_000,
        7,
        8 * GIB,
        True,
    ),
    "expandable_max_split": (
        "expandable_segments:True,max_split_size_mb:64",
        50_000,
        8,
        6 * GIB,
        True,
    ),
    "large_segment": ("large_segment_size_mb:64", 30_000, 9, 8 * GIB, False),
    "expandable_large_segment": (
        "expandable_segments:True,large_segment_size_mb:64",
        30_000,
        10,
        6 * GIB,
        True,
    ),
}

SETTINGS_TO_TRY = [
    "", "expandable_segments:True", "expandable_segments:true", "expandable_segments:1",
    "max_split_size_mb:20", "max_split_size_mb:21", "max_split_size_mb:1", "max_split_size_mb:abc",
    "max_split_size_mb:-1", "max_split_size_mb", "max_split_size_mb:", "max_split_size_mb:128,",
    ",max_split_size_mb:128", "max_non_split_rounding_mb:20", "max_non_split_rounding_mb:10",
    "garbage_collection_threshold:0.5", "garbage_collection_threshold:0",
    "garbage_collection_threshold:1.0", "garbage_collection_threshold:1.5",
    "garbage_collection_threshold:x", "roundup_power2_divisions:4", "roundup_power2_divisions:3",
    "roundup_power2_divisions:0", "roundup_power2_divisions:1",
    "roundup_power2_divisions:[256:1,512:2,>:4]", "roundup_power2_divisions:[256:1,512:2]",
    "roundup_power2_divisions:[>:4]", "roundup_power2_divisions:[100:4]",
    "roundup_power2_divisions:[256:3]", "roundup_power2_divisions:[256:1,512:2",
    "roundup_power2_divisions:[]", "roundup_power2_divisions:[512:2,256:1]",
    "large_segment_size_mb:40", "large_segment_size_mb:20", "large_segment_size_mb:10",
    "large_segment_size_mb:21", "per_process_memory_fraction:0.5", "per_process_memory_fraction:2",
    "throw_on_cudamalloc_oom:True", "graph_capture_record_stream_reuse:True",
    "release_lock_on_cudamalloc:True", "pinned_use_background_threads:True",
    "pinned_num_register_threads:2", "pinned_use_cuda_host_register:True",
    "pinned_reserve_segment_size_mb:64", "pinned_free_catch_all:True", "backend:native",
    "backend:cudaMallocAsync", "backend:foo", "unknown_key:1", "unknown_key",
    " max_split_size_mb : 128 , expandable_segments : False ",
]  # fmt: skip


class Random:
    """splitmix64: the same numbers in Python and C++."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, n: int) -> int:
        return self.next() % n


class Program:
    """Random operations on an allocator. Everything it does follows from its arguments and from
    which allocations failed."""

    def __init__(self, subject: Subject, seed: int, byte_cap: int, limited: bool) -> None:
        self.subject = subject
        self.rng = Random(seed)
        self.byte_cap = byte_cap
        self.live: list[list[int]] = []  # [handle, bytes, stream, mask of other streams]
        self.live_bytes = 0
        self.handles = 0
        self.to_free = 0  # after a failure: this many frees come next
        self.limited = False
        self.gate_closed = False
        self.operation = 0
        if limited:
            self.change_limit(4 * GIB)

    def step(self) -> None:
        rng = self.rng
        max_live = (60, 500, 4000)[(self.operation // 20000) % 3]
        self.operation += 1
        if self.to_free > 0 and self.live:
            self.to_free -= 1
            self.free()
            return
        kind = rng.below(1000)
        if kind < 560:
            if self.live_bytes < self.byte_cap and len(self.live) < max_live:
                self.allocate()
            else:
                self.free()
        elif kind < 960:
            self.free()
        elif kind < 992:
            self.use_elsewhere()
        elif kind < 996:
            self.toggle_gate()
        else:
            self.rare(kind, rng.below(20))

    def rare(self, kind: int, dice: int) -> None:
        if kind == 996 and dice < 2:
            self.free_busy_then_allocate()
        elif kind == 997 and dice < 2:
            self.change_limit((0, 2, 3, 4, 6, 8)[self.rng.below(6)] * GIB)
        elif kind == 998 and dice < 2:
            self.open_gate()
            self.subject.empty_cache()
        elif kind == 999 and dice < 1:
            self.subject.reset_peaks()

    def size(self) -> int:
        kind = self.rng.below(100)
        if kind < 50:
            low, high = 0, 20
        elif kind < 82:
            low, high = 20, 23
        elif kind < 97:
            low, high = 23, 27
        else:
            low, high = 27, 29
        bits = low + self.rng.below(high - low)
        size = (1 << bits) + self.rng.below(1 << bits)
        # Real programs repeat sizes: half of them are rounded to few values.
        return size if self.rng.below(2) else max(1, size >> max(0, bits - 2) << max(0, bits - 2))

    def allocate(self) -> None:
        size = self.size()
        stream = self.rng.below(STREAMS) if self.rng.below(4) == 0 else 0
        if self.subject.allocate(self.handles, size, stream):
            self.live.append([self.handles, size, stream, 0])
            self.live_bytes += size
            self.handles += 1
        else:
            self.to_free = len(self.live) // 2

    def pick(self) -> int:
        return self.rng.below(len(self.live))

    def free(self) -> None:
        if not self.live:
            return
        self.release(self.pick())

    def release(self, index: int) -> None:
        handle, size, _stream, mask = self.live[index]
        self.live[index] = self.live[-1]
        self.live.pop()
        self.live_bytes -= size
        self.subject.free(handle, mask != 0)
        if mask and not self.gate_closed:
            self.subject.synchronize()

    def use_elsewhere(self) -> None:
        if not self.live:
            return
        block = self.live[self.pick()]
        stream = self.rng.below(STREAMS)
        if stream != block[2]:
            block[3] |= 1 << stream
        self.subject.record_stream(block[0], stream)

    def toggle_gate(self) -> None:
        if self.gate_closed:
            self.open_gate()
        elif not self.limited:
            self.gate_closed = True
            self.subject.close_gate()

    def open_gate(self) -> None:
        if self.gate_closed:
            self.gate_closed = False
            self.subject.open_gate()

    def change_limit(self, limit: int) -> None:
        self.open_gate()
        self.limited = limit != 0
        self.subject.set_limit(limit)

    def free_busy_then_allocate(self) -> None:
        """Frees a block that another stream still uses, and allocates before that stream is done:
        only the retry after a failed allocation waits for it."""
        if not self.limited or not self.live:
            return
        index = self.pick()
        handle, _size, stream, _mask = self.live[index]
        other = (stream + 1) % STREAMS
        self.live[index][3] |= 1 << other
        self.subject.record_stream(handle, other)
        self.subject.keep_busy(other)
        # Freed without the usual synchronisation.
        self.live_bytes -= self.live[index][1]
        self.live[index] = self.live[-1]
        self.live.pop()
        self.subject.free(handle, True)
        self.allocate()
        self.subject.synchronize()


class Gate:
    """Holds streams back until it is opened, by a driver call that waits for a value in memory."""

    def __init__(self, torch: Any, streams: list[Any], works: bool) -> None:
        self.torch = torch
        self.call: Any = None
        self.streams = streams
        self.value = torch.zeros(1, dtype=torch.int32).pin_memory()
        self.address = self.value.data_ptr()
        self.word = ctypes.c_int32.from_address(self.address)
        self.round = 0
        if not works:
            return
        try:
            driver = ctypes.CDLL("libcuda.so.1")
            call = getattr(driver, "cuStreamWaitValue32_v2", None) or driver.cuStreamWaitValue32
            call.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint]
            call.restype = ctypes.c_int
            self.call = call
        except (OSError, AttributeError):
            pass

    def close(self) -> None:
        self.round += 1
        if self.call is None:
            return
        for stream in self.streams:
            error = self.call(stream.cuda_stream, self.address, self.round, 0)
            if error:
                self.call = None
                self.word.value = self.round
                return

    def open(self) -> None:
        self.word.value = self.round
        self.torch.cuda.synchronize()


class Subject:
    """torch's allocator, watched."""

    def __init__(self, out: Any, conf: str, gate: bool) -> None:
        torch: Any = importlib.import_module("torch")
        self.torch = torch
        self.out = out
        torch.cuda.init()
        self.memory = torch.cuda.memory
        self.device = torch.device("cuda:0")
        self.streams = [torch.cuda.default_stream()]
        self.streams += [torch.cuda.Stream() for _ in range(STREAMS - 1)]
        self.stream_index = {s.cuda_stream: i for i, s in enumerate(self.streams)}
        self.tensors: dict[int, Any] = {}
        self.current = 0
        self.address_to_handle: dict[int, int] = {}
        self.chunk: list[tuple[int, int]] = []  # (handle, address) of successes, in order
        self.waiting: set[int] = set()  # handles freed while other streams used them
        self.hash = 0xCBF29CE484222325
        self.ordinal = 0  # of allocations seen in the trace, failed ones included
        self.messages = 0
        self.gate = Gate(torch, self.streams, gate)
        total = torch.cuda.mem_get_info()[1]
        self.total = total
        self.keys = sorted(k for k, v in torch.cuda.memory_stats().items() if isinstance(v, int))
        self.write(
            kind="header", conf=conf, torch=torch.__version__, total=total, keys=self.keys,
            gpu=torch.cuda.get_device_name(0), gate=self.gate.call is not None,
            properties_total=torch.cuda.get_device_properties(0).total_memory,
        )  # fmt: skip
        self.history()

    def write(self, **fields: Any) -> None:
        self.out.write(json.dumps(fields, separators=(",", ":")) + "\n")

    def history(self) -> None:
        self.memory._record_memory_history(enabled="all", context=None, clear_history=True)

    def use_stream(self, stream: int) -> None:
        if stream != self.current:
            self.torch.cuda.set_stream(self.streams[stream])
            self.current = stream

    def allocate(self, handle: int, size: int, stream: int) -> bool:
        self.use_stream(stream)
        try:
            tensor = self.torch.empty(size, dtype=self.torch.uint8, device=self.device)
        except self.torch.OutOfMemoryError as error:
            self.messages += 1
            if self.messages <= 12:
                self.write(kind="oom", handle=handle, bytes=size, stream=stream, text=str(error),
                           free=self.torch.cuda.mem_get_info()[0], stats=self.stats())  # fmt: skip
            return False
        address = tensor.data_ptr()
        self.tensors[handle] = tensor
        self.chunk.append((handle, address))
        self.hash = ((self.hash ^ address) * 0x100000001B3) & MASK
        return True

    def free(self, handle: int, waits: bool) -> None:
        if waits:
            self.waiting.add(handle)
        del self.tensors[handle]

    def record_stream(self, handle: int, stream: int) -> None:
        self.tensors[handle].record_stream(self.streams[stream])

    def keep_busy(self, stream: int) -> None:
        self.use_stream(stream)
        self.torch.cuda._sleep(60_000_000)

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def close_gate(self) -> None:
        self.gate.close()

    def open_gate(self) -> None:
        self.gate.open()

    def empty_cache(self) -> None:
        self.torch.cuda.empty_cache()

    def set_limit(self, limit: int) -> None:
        fraction = limit / self.total if limit else 1.0
        self.torch.cuda.set_per_process_memory_fraction(fraction)

    def reset_peaks(self) -> None:
        self.torch.cuda.reset_peak_memory_stats()

    def stats(self) -> list[int]:
        values = self.torch.cuda.memory_stats()
        return [values[key] for key in self.keys]

    def checkpoint(self, operation: int) -> None:
        """Writes what the trace says since the last one, then the statistics."""
        trace = self.torch.cuda.memory._snapshot()["device_traces"][0]
        self.history()
        segments: list[list[int]] = []
        completions: list[list[int]] = []
        allocated = iter(self.chunk)
        for entry in trace:
            action = entry["action"]
            address = entry.get("addr", 0)
            if action == "alloc":
                handle, expected = next(allocated)
                assert expected == address, (handle, expected, address)
                self.address_to_handle[address] = handle
                self.ordinal += 1
            elif action == "oom":
                self.ordinal += 1
            elif action == "free_completed":
                handle = self.address_to_handle[address]
                if handle in self.waiting:
                    self.waiting.discard(handle)
                    completions.append([self.ordinal, handle])
            elif action.startswith("segment"):
                kind = ("segment_alloc", "segment_free", "segment_map", "segment_unmap").index(
                    action
                )
                stream = self.stream_index.get(entry["stream"], -1)
                segments.append([self.ordinal, kind, address, entry["size"], stream])
        self.chunk.clear()
        self.write(kind="checkpoint", op=operation, allocs=self.ordinal, hash=f"{self.hash:016x}",
                   segments=segments, completions=completions, stats=self.stats())  # fmt: skip


def run_random(out_dir: Path, name: str, scale: float, gate: bool) -> None:
    conf, operations, seed, cap, limited = RANDOM_RUNS[name]
    with gzip.open(out_dir / f"random.{name}.jsonl.gz", "wt", compresslevel=9) as out:
        subject = Subject(out, conf, gate)
        program = Program(subject, seed, cap, limited)
        operations = int(operations * scale)
        for operation in range(1, operations + 1):
            program.step()
            if operation % 5000 == 0 or operation == operations:
                subject.checkpoint(operation)


class Script:
    """A written program on torch's allocator, and its trace as CSV rows."""

    def __init__(self, out: Any, conf: str) -> None:
        torch: Any = importlib.import_module("torch")
        self.torch = torch
        self.out = out
        torch.cuda.init()
        self.total = torch.cuda.mem_get_info()[1]
        self.streams: dict[int, int] = {0: 0}
        self.keys = sorted(k for k, v in torch.cuda.memory_stats().items() if isinstance(v, int))
        header = {
            "conf": conf,
            "torch": torch.__version__,
            "total": self.total,
            "keys": self.keys,
            "gpu": torch.cuda.get_device_name(0),
        }
        out.write("# " + json.dumps(header) + "\n")
        out.write("action,addr,size,stream,pool\n")
        self.history()

    def history(self) -> None:
        self.torch.cuda.memory._record_memory_history(
            enabled="all", context=None, clear_history=True
        )

    def drain(self) -> None:
        trace = self.torch.cuda.memory._snapshot()["device_traces"][0]
        self.history()
        for e in trace:
            if e["action"] == "snapshot":
                continue
            stream = self.streams.setdefault(e.get("stream", 0), len(self.streams))
            pool = e.get("pool_id") or e.get("segment_pool_id") or ""
            pool = "/".join(str(p) for p in pool) if pool else ""
            address = e.get("addr", e.get("device_free", 0))
            self.out.write(f"{e['action']},{address},{e.get('size', 0)},{stream},{pool}\n")

    def mark(self, action: str, a: Any = 0, b: Any = 0, c: Any = 0, d: Any = "") -> None:
        self.drain()
        self.out.write(f"{action},{a},{b},{c},{d}\n")

    def checkpoint(self) -> None:
        self.drain()
        values = self.torch.cuda.memory_stats()
        self.out.write("# stats " + json.dumps([values[k] for k in self.keys]) + "\n")

    def stream(self) -> Any:
        stream = self.torch.cuda.Stream()
        self.streams.setdefault(stream.cuda_stream, len(self.streams))
        return stream

    def limit(self, limit: int) -> None:
        self.drain()
        self.torch.cuda.set_per_process_memory_fraction(limit / self.total)
        self.out.write(f"set_limit,0,{limit},0,\n")

    def empty_cache(self) -> None:
        self.mark("empty_cache")
        self.torch.cuda.empty_cache()

    def allocate(self, size: int) -> Any:
        try:
            return self.torch.empty(size, dtype=self.torch.uint8, device="cuda:0")
        except self.torch.OutOfMemoryError as error:
            self.drain()
            self.out.write("# message " + json.dumps(str(error)) + "\n")
            return None


def graph_pools(script: Script) -> None:
    """Captures with own and shared private pools, eager work around them, graphs dropped."""
    torch = script.torch
    rng = random.Random(11)
    side = script.stream()

    def size() -> int:
        return int(2 ** rng.uniform(8, 27))

    eager = [script.allocate(size()) for _ in range(40)]
    graphs: list[Any] = []
    kept: list[list[Any]] = []
    shared = torch.cuda.graph_pool_handle()
    for number in range(6):
        graph = torch.cuda.CUDAGraph()
        pool = shared if number % 2 else torch.cuda.graph_pool_handle()
        torch.cuda.synchronize()
        script.mark("capture_about_to_begin", number, 0, 1, "/".join(map(str, pool)))
        held: list[Any] = []
        with torch.cuda.stream(side):
            graph.capture_begin(pool=pool)
            script.mark("capture_begin", number, 0, 1, "/".join(map(str, pool)))
            for _ in range(120):
                if held and rng.random() < 0.45:
                    held.pop(rng.randrange(len(held)))
                else:
                    tensor = script.allocate(size())
                    tensor[:1].zero_()
                    held.append(tensor)
            script.mark("capture_about_to_end", number, 0, 1, "/".join(map(str, pool)))
            graph.capture_end()
        script.mark("capture_end", number, 0, 1, "/".join(map(str, pool)))
        script.checkpoint()
        graphs.append((graph, pool))
        kept.append(held)
        for _ in range(60):
            if eager and rng.random() < 0.5:
                eager.pop(rng.randrange(len(eager)))
            else:
                eager.append(script.allocate(size()))
        graph.replay()
        if number == 3:
            script.empty_cache()
        script.checkpoint()
    torch.cuda.synchronize()
    for number in (0, 3, 1, 5, 2, 4):
        kept[number].clear()
        script.mark("graph_reset", number, 0, 1, "/".join(map(str, graphs[number][1])))
        graphs[number][0].reset()
        script.checkpoint()
        if number in (3, 5, 4):
            script.empty_cache()
            script.checkpoint()
        eager.append(script.allocate(size()))
    eager.clear()
    script.empty_cache()
    script.checkpoint()


def split_growth(script: Script) -> None:
    """pytorch#193400: with expandable segments, a free block above max_split_size_mb is not reused
    for a smaller request, so reserved memory grows."""
    script.limit(4 * GIB)
    for _ in range(3):
        big = script.allocate(550 * MIB)
        del big
        held = [script.allocate(110 * MIB) for _ in range(12)]
        script.checkpoint()
        del held[::2]
        script.checkpoint()
        more = [script.allocate(30 * MIB) for _ in range(40)]
        script.checkpoint()
        del held, more
    many = []
    for number in range(60):
        many.append(script.allocate(110 * MIB))
        if number % 10 == 9:
            script.checkpoint()
    del many
    script.empty_cache()
    script.checkpoint()


def placement(script: Script) -> None:
    """Segments of many sizes taken and returned, to see where the driver puts them."""
    rng = random.Random(5)
    held: list[Any] = []
    for turn in range(400):
        if held and rng.random() < 0.45:
            held.pop(rng.randrange(len(held)))
        else:
            held.append(script.allocate(int(2 ** rng.uniform(18, 30))))
        if turn % 8 == 7:
            script.empty_cache()
    script.checkpoint()


def device_full(script: Script) -> None:
    """The device's own end, without a limit."""
    torch = script.torch
    script.out.write("# memory " + json.dumps(torch.cuda.mem_get_info()) + "\n")
    held: list[Any] = []
    for size in (1 << 30, 64 << 20, 4 << 20, 1 << 20):
        while len(held) < 4000 and (tensor := script.allocate(size)) is not None:
            held.append(tensor)
        script.checkpoint()
        script.out.write("# memory " + json.dumps(torch.cuda.mem_get_info()) + "\n")


def settings(script: Script) -> None:
    """Which settings torch accepts, and what it says about the others."""
    torch = script.torch
    apply = getattr(torch.cuda.memory, "_set_allocator_settings", None)
    if apply is None:
        apply = torch._C._accelerator_setAllocatorSettings
    for text in SETTINGS_TO_TRY:
        try:
            apply(text)
            answer = "ok"
        except BaseException as error:
            answer = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        script.out.write("# setting " + json.dumps([text, answer]) + "\n")


SCRIPTS: dict[str, tuple[str, Callable[[Script], None]]] = {
    "graphs": ("", graph_pools),
    "graphs_expandable": ("expandable_segments:True", graph_pools),
    "split_growth": ("expandable_segments:True,max_split_size_mb:128", split_growth),
    "split_growth_plain": ("max_split_size_mb:128", split_growth),
    "placement": ("", placement),
    "placement_expandable": ("expandable_segments:True", placement),
    "settings": ("", settings),
    "device_full": ("", device_full),
    "device_full_expandable": ("expandable_segments:True", device_full),
}


def run_script(out_dir: Path, name: str) -> None:
    conf, body = SCRIPTS[name]
    with gzip.open(out_dir / f"script.{name}.csv.gz", "wt", compresslevel=9) as out:
        script = Script(out, conf)
        body(script)
        script.drain()


def run_job(out_dir: Path, kind: str, name: str, flags: list[str]) -> str:
    conf = RANDOM_RUNS[name][0] if kind == "random" else SCRIPTS[name][0]
    env = dict(os.environ)
    env.pop("PYTORCH_ALLOC_CONF", None)
    env.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    if conf:
        env["PYTORCH_CUDA_ALLOC_CONF"] = conf
    command = [sys.executable, __file__, str(out_dir), "--only", f"{kind}:{name}", *flags]
    limit = 150 if name == "default" else 60
    try:
        done = subprocess.run(
            command, env=env, timeout=limit, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        return "timed out"
    return "ok" if done.returncode == 0 else f"failed {done.returncode}: {done.stderr[-1500:]}"


def run_all(out_dir: Path, quick: bool) -> int:
    jobs = [("random", name) for name in RANDOM_RUNS] + [("script", name) for name in SCRIPTS]
    flags = ["--quick"] if quick else []
    failed = 0
    log: list[str] = []
    for kind, name in jobs:
        began = time.monotonic()
        outcome = run_job(out_dir, kind, name, flags)
        if outcome == "timed out" and kind == "random" and "--no-gate" not in flags:
            # A driver that waits inside cudaMalloc for the held streams: go on without holding any.
            flags.append("--no-gate")
            outcome = "timed out with the gate; without it " + run_job(out_dir, kind, name, flags)
        failed += not outcome.endswith("ok")
        line = f"{kind}:{name} {outcome} ({time.monotonic() - began:.1f} s)"
        print(line, flush=True)
        log.append(line)
    (out_dir / "log.txt").write_text("\n".join(log) + "\n")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Record the CUDA caching allocator's behaviour.")
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--only", help="one job, as KIND:NAME, in this process")
    parser.add_argument("--quick", action="store_true", help="a tenth of the random operations")
    parser.add_argument("--no-gate", action="store_true", help="never hold streams back")
    args = parser.parse_args()
    args.out_dir.mkdir(parents=True, exist_ok=True)
    if not args.only:
        return run_all(args.out_dir, args.quick)
    kind, name = args.only.split(":")
    if kind == "random":
        run_random(args.out_dir, name, 0.1 if args.quick else 1.0, not args.no_gate)
    else:
        run_script(args.out_dir, name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
