"""Short written programs, and the allocator's own trace of them."""

from __future__ import annotations

import gzip
import importlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

MIB = 1 << 20
GIB = 1 << 30

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
